"""Roll-up: counts, progress, phase and conditions."""

from datetime import timedelta

import pytest

from simulation.cluster import START, trainer
from simulation.views import (
    OTHER,
    SERVER,
    WORKER,
    active,
    agent,
    exited,
    observed,
    pod,
    with_spec,
    with_status,
)
from trainer_operator.api.status import (
    LastCheckpoint,
    MembershipPhase,
    PendingChange,
    Phase,
    RecoveryStatus,
    ServerPhase,
    TrainerStatus,
)
from trainer_operator.api.trainer import CheckpointPolicy
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.phase import roll_up
from trainer_operator.trainer.views import CheckpointView

BOTH = [(WORKER, pod()), (OTHER, pod(OTHER))]


def rolled(status=None, *, of=None, pods=BOTH, agents=None, now=START):
    of = of or trainer()
    of = with_status(of, status or active("worker:0-1", world=2))
    agents = agents if agents is not None else [agent(), agent(OTHER)]
    draft = Draft(observed(of=of, pods=pods, agents=agents, now=now), of.status.model_copy(deep=True))
    roll_up(draft)
    return draft.status


def condition(status, kind):
    (found,) = [entry for entry in status.conditions if entry.type == kind]
    return found


def with_membership(**changes):
    status = active("worker:0-1", world=2)
    for name, value in changes.items():
        setattr(status.membership, name, value)
    return status


# -- phase


@pytest.mark.parametrize(
    ("changes", "scheduled", "phase"),
    [
        ({"epoch": 0, "phase": MembershipPhase.PREPARING}, False, Phase.PENDING),
        ({"epoch": 0, "phase": MembershipPhase.PREPARING}, True, Phase.STARTING),
        ({"phase": MembershipPhase.PREPARING, "reason": "Started"}, True, Phase.STARTING),
        ({"phase": MembershipPhase.PREPARING, "reason": "ProcessExited"}, True, Phase.RECOVERING),
        ({"phase": MembershipPhase.PREPARING, "reason": "Lost"}, True, Phase.RECOVERING),
        ({"phase": MembershipPhase.PREPARING, "reason": "Scaled"}, True, Phase.SCALING),
        ({"phase": MembershipPhase.PREPARING, "reason": "Resumed"}, False, Phase.PENDING),
        ({"phase": MembershipPhase.PREPARING, "reason": "Resumed"}, True, Phase.STARTING),
    ],
)
def test_the_phase_before_an_epoch_is_active_tells_why(changes, scheduled, phase):
    """ST6."""
    pods = BOTH if scheduled else [(WORKER, pod(phase="Pending", node=""))]
    assert rolled(with_membership(**changes), pods=pods).phase is phase


def test_a_trainer_runs_when_every_member_trains():
    """ST6."""
    assert rolled().phase is Phase.RUNNING
    starting = rolled(agents=[agent(), agent(OTHER, phase="rendezvous")])
    assert starting.phase is Phase.STARTING


@pytest.mark.parametrize("phase", ["train", "checkpoint", "eval"])
def test_members_are_ready_in_every_phase_of_work(phase):
    """ST4."""
    assert rolled(agents=[agent(phase=phase), agent(OTHER)]).ready_workers == "2/2"


@pytest.mark.parametrize("phase", ["init", "rendezvous", "waiting_ps", "paused", "draining"])
def test_members_are_not_ready_in_other_phases(phase):
    """ST4."""
    assert rolled(agents=[agent(phase=phase), agent(OTHER)]).ready_workers == "1/2"


def test_a_short_phase_of_a_live_process_is_no_reason_to_call_it_anything_but_running():
    """ST6."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING)
    assert rolled(status, agents=[agent(phase="rendezvous"), agent(OTHER)]).phase is Phase.RUNNING


def test_a_crash_ends_running():
    """ST6."""
    recovery = RecoveryStatus(message="it crashed", detected_at=START + timedelta(seconds=5))
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, recovery=recovery)
    after = rolled(status, agents=[agent(**exited(1)), agent(OTHER)], now=START + timedelta(seconds=5))
    assert after.phase is Phase.RECOVERING
    assert condition(after, "Ready").message == "it crashed"


def test_a_server_that_does_not_serve_is_a_recovery():
    """ST6."""
    status = active("worker:0-1;ps:0", world=2, phase=Phase.RUNNING)
    status.membership.ps_phase = ServerPhase.RECOVERING
    pods = [*BOTH, (SERVER, pod(SERVER))]
    of = trainer(servers=1)
    assert rolled(status, of=of, pods=pods, agents=[agent(), agent(OTHER)]).phase is Phase.RECOVERING


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.SUSPENDED])
def test_an_end_or_a_rest_is_not_rolled_over(phase):
    """ST6, TR02."""
    assert rolled(active("worker:0-1", world=2, phase=phase, completion_time=START)).phase is phase


# -- counts and progress


def test_counts_tell_what_there_is_and_what_there_should_be():
    """ST5."""
    of = trainer(workers=3, servers=1)
    pods = [*BOTH, (SERVER, pod(SERVER, terminating=True))]
    status = rolled(active("worker:0-2;ps:0", world=3), of=of, pods=pods)
    assert (status.roles.worker.desired, status.roles.worker.active, status.roles.worker.ready) == (3, 2, 2)
    assert (status.roles.ps.desired, status.roles.ps.active, status.roles.ps.ready) == (1, 0, 0)
    assert (status.workers, status.ready_workers, status.ready_servers) == (2, "2/3", "0/1")


def test_the_selector_finds_exactly_the_workers():
    """CR6."""
    assert rolled().selector == "trainer-name=t,trainer.operator.kubeflow.org/role=worker"


def test_the_step_is_the_highest_of_the_present_epoch():
    """ME7."""
    status = active("worker:0-1", world=2, epoch=3, global_step=10)
    agents = [agent(epoch=3, step=12), agent(OTHER, epoch=2, step=99)]
    assert rolled(status, agents=agents).global_step == 12


@pytest.mark.parametrize(
    ("phase", "epoch", "step"),
    [(MembershipPhase.PREPARING, 1, 10), (MembershipPhase.ACTIVE, 1, 40), (MembershipPhase.ACTIVE, 2, 10)],
)
def test_reports_move_the_step_only_within_an_active_epoch(phase, epoch, step):
    """ME7."""
    status = with_membership(phase=phase, epoch=epoch)
    status.global_step = 10
    assert rolled(status, agents=[agent(step=40), agent(OTHER, step=40)]).global_step == step


def test_the_step_never_falls_with_a_report():
    """ME7."""
    status = active("worker:0-1", world=2, global_step=100)
    assert rolled(status, agents=[agent(step=5), agent(OTHER, step=5)]).global_step == 100


@pytest.mark.parametrize(
    ("ps_epoch", "ps_phase", "step"), [(2, "Serving", 40), (1, "Serving", 10), (2, "Recovering", 10)]
)
def test_reports_under_an_older_server_epoch_change_nothing(ps_epoch, ps_phase, step):
    """PSR6, ME7."""
    status = active("worker:0-1;ps:0", world=2, global_step=10)
    status.membership.ps_epoch, status.membership.ps_phase = 2, ServerPhase(ps_phase)
    agents = [agent(step=40, ps_epoch=ps_epoch), agent(OTHER, step=40, ps_epoch=ps_epoch)]
    assert rolled(status, of=trainer(servers=1), agents=agents).global_step == step


def test_epochs_are_counted_up_to_what_was_asked_for():
    of = trainer(epochs=5)
    assert rolled(of=of, agents=[agent(data_epoch=3), agent(OTHER, data_epoch=2)]).epochs_completed == 3
    assert rolled(of=of, agents=[agent(data_epoch=9), agent(OTHER)]).epochs_completed == 5


def test_figures_of_the_training_are_shown():
    assert rolled(agents=[agent(metrics={"loss": 0.5, "accuracy": 0.9}), agent(OTHER)]).metrics == {
        "accuracy": 0.9,
        "loss": 0.5,
    }


# -- conditions


def test_the_same_input_twice_gives_the_same_list_to_the_letter():
    """CR7, TR17."""
    first = rolled()
    again = rolled(first, now=START + timedelta(hours=1))
    assert again.dump() == first.dump()
    assert [entry.type for entry in again.conditions] == [entry.type for entry in first.conditions]


def test_there_is_one_condition_of_each_type_however_long_it_runs():
    """TR18."""
    status = rolled()
    for hour in range(20):
        agents = (
            [agent(), agent(OTHER)] if hour % 2 else [agent(phase="rendezvous"), agent(OTHER, **exited(1))]
        )
        status = rolled(status, agents=agents, now=START + timedelta(hours=hour))
    kinds = [entry.type for entry in status.conditions]
    assert sorted(kinds) == sorted(set(kinds))
    assert len(kinds) == 7


def test_the_time_of_a_condition_moves_with_its_status_only():
    """CR7."""
    starting = rolled(agents=[agent(phase="init"), agent(OTHER)])
    assert condition(starting, "Ready").status == "False"
    later = START + timedelta(minutes=1)
    running = rolled(starting, now=later)
    assert (condition(running, "Ready").status, condition(running, "Ready").last_transition_time) == (
        "True",
        later,
    )
    assert condition(running, "Suspended").last_transition_time == START


@pytest.mark.parametrize(
    ("phase", "ready", "succeeded", "suspended"),
    [
        (Phase.SUCCEEDED, "False", "True", "False"),
        (Phase.FAILED, "False", "False", "False"),
        (Phase.SUSPENDED, "False", "Unknown", "True"),
        (None, "True", "Unknown", "False"),
    ],
)
def test_conditions_say_what_the_phase_says(phase, ready, succeeded, suspended):
    """CR8, ST6."""
    status = rolled(active("worker:0-1", world=2, phase=phase, completion_time=START, message="why"))
    found = [condition(status, kind).status for kind in ("Ready", "Succeeded", "Suspended")]
    assert found == [ready, succeeded, suspended]
    if phase in {Phase.SUCCEEDED, Phase.FAILED}:
        assert condition(status, "Succeeded").message == "why"


def test_a_missing_member_makes_a_trainer_degraded_until_it_ends():
    """ST6."""
    status = rolled(pods=[(WORKER, pod())], agents=[agent()])
    assert condition(status, "Degraded").status == "True"
    assert condition(status, "Degraded").message == "1 of 2 members are not there"
    assert condition(rolled(), "Degraded").status == "False"
    ended = rolled(active("worker:0-1", world=2, phase=Phase.SUCCEEDED), pods=[], agents=[])
    assert condition(ended, "Degraded").status == "False"


def test_a_change_under_way_shows_as_resizing():
    """ST6."""
    change = PendingChange(reason="Scale", since=START)
    assert (
        condition(rolled(active("worker:0-1", world=2, pending_change=change)), "Resizing").status == "True"
    )
    assert condition(rolled(), "Resizing").status == "False"


@pytest.mark.parametrize(
    ("changes", "configured", "status", "reason"),
    [
        ({}, False, "Unknown", "NotConfigured"),
        ({}, True, "Unknown", "NoneYet"),
        ({"last_checkpoint": LastCheckpoint(name="c", step=1)}, True, "True", "Committed"),
        (
            {"checkpoint_failures": 2, "last_checkpoint": LastCheckpoint(name="c", step=1)},
            True,
            "True",
            "Committed",
        ),
        (
            {"checkpoint_failures": 3, "last_checkpoint": LastCheckpoint(name="c", step=1)},
            True,
            "False",
            "AttemptsFail",
        ),
    ],
)
def test_a_condition_tells_how_checkpoints_fare(changes, configured, status, reason):
    """CS10."""
    of = trainer() if configured else with_spec(trainer(), checkpoint=None)
    found = condition(rolled(active("worker:0-1", world=2, **changes), of=of), "CheckpointHealthy")
    assert (found.status, found.reason) == (status, reason)


@pytest.mark.parametrize(("secret", "reason"), [(None, "CredentialsMissing"), ("keys", "NoneYet")])
def test_a_bucket_needs_a_secret(secret, reason):
    """TN1: said in one sentence, and nothing is asked of agents until it is there."""
    policy = CheckpointPolicy(bucket="s3://training/runs", credentials_secret=secret)
    found = condition(rolled(of=with_spec(trainer(), checkpoint=policy)), "CheckpointHealthy")
    assert found.reason == reason
    assert ("credentialsSecret" in found.message) is (secret is None)


@pytest.mark.parametrize(
    ("attempts", "reason"),
    [
        ([("Full", "the store has no room")], "Full"),
        ([("StoreChanged", "another store")], "StoreChanged"),
        ([("Full", "the store has no room"), ("", "")], "NoneYet"),
        ([("StagingTimeout", "late")], "NoneYet"),
        ([], "NoneYet"),
    ],
)
def test_what_is_wrong_with_the_store_is_said_at_once_and_until_an_attempt_gets_through(attempts, reason):
    """PB4: in the words of the agent that met it."""
    status = active("worker:0-1", world=2)
    of = with_status(trainer(), status)
    views = tuple(
        CheckpointView(
            name=f"t-c{number:05}",
            id="",
            step=1,
            state="GarbageCollected" if why else "Committed",
            health="Healthy",
            reason="Interval",
            sequence=number,
            aborted=bool(why),
            abort_reason=why,
            abort_message=text,
        )
        for number, (why, text) in enumerate(attempts, 1)
    )
    seen = observed(of=of, pods=BOTH, agents=[agent(), agent(OTHER)], checkpoints=views)
    draft = Draft(seen, of.status.model_copy(deep=True))
    roll_up(draft)
    found = condition(draft.status, "CheckpointHealthy")
    assert found.reason == reason
    if reason == "Full":
        assert (found.status, found.message) == ("False", "the store has no room")


def test_code_without_the_sdk_runs_and_the_condition_says_that_nothing_is_saved():
    """AG5, CS10: no checkpoint is begun that nobody would answer."""
    of = with_status(trainer(), active("worker:0-1", world=2, global_step=500))
    agents = [agent(step=500, steps="output"), agent(OTHER, steps="none")]
    decision = decide(observed(of=of, pods=BOTH, agents=agents, now=START + timedelta(days=1)))
    assert decision.status.phase is Phase.RUNNING
    found = condition(decision.status, "CheckpointHealthy")
    assert (found.status, found.reason) == ("False", "CodeWithoutSDK")
    assert "nothing is saved" in found.message
    assert "trainer_sdk.init()" in found.message
    assert decision.status.checkpoint_in_flight is None


def test_a_member_whose_step_is_overdue_degrades_the_trainer():
    """ST6."""
    found = condition(rolled(active("worker:0-1", world=2, suspects=["worker-1"])), "Degraded")
    assert (found.status, found.reason) == ("True", "StepOverdue")
    assert "worker-1" in found.message


def test_every_condition_names_the_generation_that_it_is_about():
    """CR7."""
    of = trainer().model_copy(update={"metadata": trainer().metadata.model_copy(update={"generation": 7})})
    status = rolled(of=of)
    assert {entry.observed_generation for entry in status.conditions} == {7}
    assert status.observed_generation == 7


def test_a_status_with_all_of_it_is_readable_again():
    """TR18: within the bounds of the schema."""
    assert TrainerStatus.read(rolled().dump()).dump() == rolled().dump()
