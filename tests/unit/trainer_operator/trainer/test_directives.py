"""What agents are told: a function of the status and of what they have done."""

from datetime import timedelta

import pytest

from simulation.cluster import START, trainer
from simulation.views import OTHER, SERVER, WORKER, active, agent, exited, observed, pod, with_status
from trainer_operator.api.meta import Role
from trainer_operator.api.status import MembershipPhase, MemberStatus, RecoveryStatus, ServerPhase
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.directives import directives_of, go_id
from trainer_operator.trainer.draft import Draft

MASTER = MemberId("master", 0)
MEMBERS = (MASTER, WORKER, OTHER, SERVER)


def told(status, agents, *, servers=0, now=START):
    of = with_status(trainer(servers=servers), status)
    pods = [(member, pod(member)) for member in MEMBERS]
    return directives_of(Draft(observed(of=of, pods=pods, agents=agents, now=now), status))


def kinds(directives):
    return {
        member: [directive.kind for directive in listed] for member, listed in directives.items() if listed
    }


def preparing(epoch=2):
    status = active("worker:0-1", world=2, epoch=epoch)
    status.membership.phase = MembershipPhase.PREPARING
    return status


def serving(phase=ServerPhase.SERVING, *, ps_epoch=3):
    status = active("worker:0-1;ps:0", world=2)
    status.membership.ps_phase, status.membership.ps_epoch = phase, ps_epoch
    return status


def test_members_that_have_not_prepared_the_epoch_are_told_to():
    """ME3, MG1."""
    found = told(preparing(), [agent(prepared=1), agent(OTHER, prepared=2)])
    assert kinds(found) == {WORKER: ["Prepare"]}
    (directive,) = found[WORKER]
    assert (directive.id, directive.args["epoch"]) == ("prepare:2", 2)


def test_an_active_epoch_lets_every_prepared_member_go():
    """ME3."""
    found = told(active("worker:0-1", world=2), [agent(), agent(OTHER)])
    assert kinds(found) == {WORKER: ["Go"], OTHER: ["Go"]}
    arguments = [found[member][0].args for member in (WORKER, OTHER)]
    assert [args["rank"] for args in arguments] == [0, 1]
    assert {args["world"] for args in arguments} == {2}
    assert [member["address"] for member in arguments[0]["members"]] == ["10.0.0.1", "10.0.0.1"]
    assert arguments[1]["env"]["RANK"] == "1"


def test_nobody_goes_before_everybody_has_an_address():
    """ME2: the world is described whole or not at all."""
    found = told(active("worker:0-1", world=2), [agent(), agent(OTHER, prepared=0)])
    assert kinds(found) == {OTHER: ["Prepare"]}


def test_an_agent_of_another_attempt_is_told_nothing():
    """DT5, TX7."""
    status = active("worker:0-1", world=2)
    status.members.append(MemberStatus(role=Role.WORKER, index=1, attempt=1))
    found = told(status, [agent(), agent(OTHER, attempt=0)])
    assert OTHER not in found


def test_a_silent_agent_is_told_nothing():
    """FT09."""
    assert OTHER not in told(active("worker:0-1", world=2), [agent(), agent(OTHER, age=1000.0)])


def test_a_member_outside_the_epoch_waits():
    """ME6."""
    assert OTHER not in told(active("worker:0", world=1), [agent(), agent(OTHER)])


def test_a_member_that_is_done_is_not_started_again():
    """ME9."""
    status = active("worker:0-1", world=2)
    status.members.append(MemberStatus(role=Role.WORKER, index=0, done=1))
    assert kinds(told(status, [agent(**exited(0)), agent(OTHER)])) == {OTHER: ["Go"]}


def test_each_epoch_and_each_handled_failure_makes_another_go():
    """MG1: so that a process that ended is started again, and one that runs is not."""
    status = active("worker:0-1", world=2)
    before = go_id(status, WORKER)
    status.members.append(MemberStatus(role=Role.WORKER, index=0, handled="0/boot/1"))
    assert len({before, go_id(status, WORKER), go_id(preparing(), WORKER)}) == 3
    assert go_id(status, OTHER) == go_id(active("worker:0-1", world=2), OTHER)


@pytest.mark.parametrize(("seconds", "goes"), [(0, False), (4.9, False), (5, True)])
def test_a_member_that_failed_waits_for_its_delay_and_the_others_do_not(seconds, goes):
    """RC1, ME5."""
    status = serving()
    status.recovery = RecoveryStatus(members=["worker-0"], not_before=START + timedelta(seconds=5))
    agents = [agent(member, ps_epoch=3) for member in MEMBERS]
    found = told(status, agents, servers=1, now=START + timedelta(seconds=seconds))
    assert ("Go" in kinds(found).get(WORKER, [])) is goes
    assert "Go" in kinds(found)[OTHER]


@pytest.mark.parametrize(
    ("step", "source", "restore"),
    [(0, "", None), (40, "", None), (40, "ckpt", {"ckpt": "ckpt", "step": 40}), (0, "ckpt", None)],
)
def test_a_go_names_the_checkpoint_to_restore_if_there_is_one(step, source, restore):
    """ME3, PSR4."""
    status = active("worker:0-1", world=2)
    status.membership.restore_step, status.membership.restore_from = step, source
    (go,) = told(status, [agent(), agent(OTHER)])[WORKER]
    assert go.args["restore"] == restore
    assert go.args["restoreStep"] == step
    assert go.args["ring"] is False


def test_servers_take_their_ring_when_no_checkpoint_holds_the_step():
    """PSR3, PSR4."""
    status = serving()
    status.membership.restore_step = 40
    agents = [agent(member, ps_epoch=3) for member in MEMBERS]
    assert told(status, agents, servers=1)[SERVER][0].args["ring"] is True
    assert told(status, agents, servers=1)[WORKER][0].args["ring"] is False


def test_while_servers_recover_workers_are_left_alone():
    """PSR2: they wait inside their SDK."""
    agents = [agent(ps_epoch=2), agent(OTHER, ps_epoch=2), agent(SERVER, prepared=0, proc="none")]
    assert kinds(told(serving(ServerPhase.RECOVERING), agents, servers=1)) == {SERVER: ["Prepare"]}


def test_whoever_runs_under_an_older_server_epoch_is_told_of_the_new_one():
    """PSR5, PSR6."""
    agents = [agent(ps_epoch=2), agent(OTHER, ps_epoch=3), agent(SERVER, ps_epoch=3)]
    found = kinds(told(serving(), agents, servers=1))
    assert "UpdatePS" in found[WORKER]
    assert "UpdatePS" not in found[OTHER]


def test_a_process_that_does_not_run_needs_no_update():
    """PSR5: its Go says all of it."""
    agents = [agent(ps_epoch=2, **exited(1)), agent(OTHER, ps_epoch=3), agent(SERVER, ps_epoch=3)]
    assert kinds(told(serving(), agents, servers=1))[WORKER] == ["Go"]


def test_with_servers_a_member_goes_as_soon_as_the_servers_are_known():
    """ME5: a missing worker holds nobody up."""
    agents = [agent(ps_epoch=3), agent(SERVER, ps_epoch=3)]
    assert kinds(told(serving(), agents, servers=1))[WORKER] == ["Go"]
    assert kinds(told(serving(), [agent(ps_epoch=3)], servers=1)) == {}


# -- startup order


WAITING = {"proc": "none", "phase": "init"}


def starting(*agents, since=START, now=START, masters=0):
    """Who is told to go, of a master, a server and two workers whose epoch became active at `since`."""
    status = serving()
    status.membership.since = since
    if masters:
        status.membership.members = "master:0;worker:0-1;ps:0"
    found = kinds(told(status, agents, servers=1, now=now))
    return {member for member, listed in found.items() if "Go" in listed}


@pytest.mark.parametrize(
    ("server", "workers_go"),
    [
        ({"proc": "none", "phase": "init"}, False),
        ({"listening": False}, False),
        ({"listening": True}, True),
        ({"listening": None}, True),
    ],
    ids=["not started", "not listening", "listening", "nobody can tell"],
)
def test_workers_go_once_the_servers_listen(server, workers_go):
    """TR47: a worker that starts before them may crash when nobody answers."""
    agents = [agent(**WAITING), agent(OTHER, **WAITING), agent(SERVER, ps_epoch=3, **server)]
    assert (starting(*agents) >= {WORKER, OTHER}) is workers_go
    assert SERVER in starting(*agents)


@pytest.mark.parametrize(("seconds", "goes"), [(29.9, False), (30, True)])
def test_a_server_that_never_listens_is_not_waited_for_for_ever(seconds, goes):
    """TR47: bounded; not every program listens on the port it was given."""
    agents = [agent(**WAITING), agent(OTHER, **WAITING), agent(SERVER, ps_epoch=3, listening=False)]
    assert (WORKER in starting(*agents, now=START + timedelta(seconds=seconds))) is goes


def test_the_end_of_the_wait_is_looked_at_when_it_comes():
    """TR47: a port that stays shut makes no event."""
    status = serving()
    of = with_status(trainer(servers=1), status)
    agents = [agent(**WAITING), agent(OTHER, **WAITING), agent(SERVER, ps_epoch=3, listening=False)]
    draft = Draft(observed(of=of, pods=[(m, pod(m)) for m in MEMBERS], agents=agents), status)
    directives_of(draft)
    assert draft.wake == 30


def test_the_master_goes_after_the_servers_and_before_the_workers():
    """TR47, api.md: the chief listens before anybody calls it."""
    waiting = [agent(each, **WAITING) for each in (MASTER, WORKER, OTHER)]
    assert starting(*waiting, agent(SERVER, ps_epoch=3, **WAITING), masters=1) == {SERVER}
    served = agent(SERVER, ps_epoch=3, listening=True)
    assert starting(*waiting, served, masters=1) == {SERVER, MASTER}
    chief = agent(MASTER, ps_epoch=3, listening=True)
    assert starting(chief, *waiting[1:], served, masters=1) == {SERVER, MASTER, WORKER, OTHER}


def test_a_worker_that_runs_is_not_disturbed_by_a_server_that_starts_again():
    """PSR2: its Go stays what it was."""
    agents = [agent(ps_epoch=3), agent(OTHER, ps_epoch=3), agent(SERVER, ps_epoch=3, listening=False)]
    assert starting(*agents) == {WORKER, OTHER, SERVER}


def test_by_all_reduce_nobody_waits_for_a_port():
    """ME3: frameworks meet inside their rendezvous, and starting one after the other would double the time."""
    agents = [agent(listening=False, **WAITING), agent(OTHER, **WAITING)]
    assert kinds(told(active("worker:0-1", world=2), agents)) == {WORKER: ["Go"], OTHER: ["Go"]}
