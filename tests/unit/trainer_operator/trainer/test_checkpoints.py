"""When a checkpoint is due, and which one is in flight."""

from datetime import timedelta

import pytest

from simulation.cluster import START, trainer
from simulation.views import OTHER, WORKER, active, agent, observed, pod, with_spec, with_status
from trainer_operator.api.status import (
    CheckpointInFlight,
    LastCheckpoint,
    MembershipPhase,
    PendingChange,
    ServerPhase,
)
from trainer_operator.trainer.checkpoints import follow, request_when_due
from trainer_operator.trainer.draft import CreateCheckpoint, Draft
from trainer_operator.trainer.views import CheckpointView

BOTH = [(WORKER, pod()), (OTHER, pod(OTHER))]
INTERVAL = 60.0


def configured(status, *, servers=0):
    of = trainer(servers=servers)
    policy = of.spec.checkpoint.model_copy(update={"interval_minutes": INTERVAL / 60})
    return with_status(with_spec(of, checkpoint=policy), status)


def draft_of(status, *, seconds=0.0, agents=None, checkpoints=(), of=None):
    of = of or configured(status)
    agents = agents if agents is not None else [agent(step=10), agent(OTHER, step=10)]
    view = observed(
        of=of,
        pods=BOTH,
        agents=agents,
        checkpoints=tuple(checkpoints),
        now=START + timedelta(seconds=seconds),
    )
    return Draft(view, of.status.model_copy(deep=True))


def due(status, **options):
    draft = draft_of(status, **options)
    request_when_due(draft)
    return draft


def training(**changes):
    return active("worker:0-1", world=2, **{"global_step": 10, **changes})


def view(name="t-c00001", *, step=5, state="Committed", **changes):
    fields = {
        "name": name,
        "id": f"{step:012d}-e1-aaaa",
        "step": step,
        "state": state,
        "health": "Healthy",
        "reason": "Interval",
        "sequence": int(name[-5:]),
        **changes,
    }
    return CheckpointView(**fields)


# -- due


@pytest.mark.parametrize(("seconds", "is_due"), [(0, False), (59.9, False), (60, True), (3600, True)])
def test_a_checkpoint_is_due_after_each_interval(seconds, is_due):
    """CS1, CS10."""
    draft = due(training(), seconds=seconds)
    assert bool(draft.actions) is is_due
    if not is_due:
        assert draft.wake == pytest.approx(60 - seconds)


def test_the_interval_counts_from_the_last_attempt():
    """CS10."""
    status = training(last_checkpoint_attempt=START + timedelta(seconds=30))
    assert due(status, seconds=89).actions == []
    assert due(status, seconds=90).actions != []


def test_what_is_requested_is_in_the_status_of_the_same_decision():
    """CS1, RC8: another leader creates the very same object."""
    draft = due(training(checkpoint_sequence=41), seconds=60)
    assert draft.actions == [CreateCheckpoint("t-c00042", "Interval", pause=False)]
    flight = draft.status.checkpoint_in_flight
    assert (flight.name, flight.reason, flight.pause) == ("t-c00042", "Interval", False)
    assert draft.status.checkpoint_sequence == 42
    assert draft.status.last_checkpoint_attempt == START + timedelta(seconds=60)


def test_a_name_is_never_used_twice():
    """CK2."""
    status, names = training(), set()
    for number in range(5):
        draft = due(status, seconds=60 * (number + 1))
        names.add(draft.actions[0].name)
        status = draft.status
        status.checkpoint_in_flight = None
    assert len(names) == 5


@pytest.mark.parametrize(
    "status",
    [
        training(checkpoint_in_flight=CheckpointInFlight(name="t-c00001")),
        training(pending_change=PendingChange(reason="Scale", since=START)),
        training(last_checkpoint=LastCheckpoint(name="c", step=10)),
        training(last_checkpoint=LastCheckpoint(name="c", step=11)),
        training(global_step=0),
    ],
    ids=["one is in flight", "a change is under way", "no new step", "a step back", "no step at all"],
)
def test_none_is_taken(status):
    """CS1, CS10."""
    assert due(status, seconds=3600).actions == []


@pytest.mark.parametrize("phase", [MembershipPhase.PREPARING])
def test_none_is_taken_while_an_epoch_is_prepared(phase):
    """CS1."""
    status = training()
    status.membership.phase = phase
    assert due(status, seconds=3600).actions == []


@pytest.mark.parametrize(("phase", "taken"), [(ServerPhase.RECOVERING, False), (ServerPhase.SERVING, True)])
def test_none_is_taken_while_servers_do_not_serve(phase, taken):
    """CS1."""
    status = training()
    status.membership.ps_phase = phase
    assert bool(due(status, seconds=3600, of=configured(status, servers=1)).actions) is taken


def test_none_is_taken_without_a_store():
    of = with_spec(configured(training()), checkpoint=None)
    assert due(training(), seconds=3600, of=of).actions == []


def test_none_is_taken_while_somebody_elses_is_open():
    """CS10: one attempt at a time."""
    assert due(training(), seconds=3600, checkpoints=[view("before-00000", state="Staging")]).actions == []


@pytest.mark.parametrize(
    "other", [agent(OTHER, phase="init"), agent(OTHER, age=1000.0), agent(OTHER, proc="exited"), None]
)
def test_none_is_asked_of_members_that_do_not_train(other):
    """CS2: it would only time out; it is looked at again soon."""
    draft = due(training(), seconds=3600, agents=[agent(step=10), *([other] if other else [])])
    assert draft.actions == []
    assert draft.wake <= 5


@pytest.mark.parametrize(("failures", "wait"), [(0, 60), (1, 30), (2, 60), (3, 60), (40, 60)])
def test_after_a_failure_the_next_one_comes_sooner_but_not_at_once(failures, wait):
    """CS10, FC03: min(interval, 30 s * 2^n)."""
    status = training(checkpoint_failures=failures)
    assert due(status, seconds=wait - 0.1).actions == []
    assert due(status, seconds=wait).actions != []


def test_the_wait_after_failures_doubles_up_to_a_long_interval():
    """CS10."""
    for failures, wait in ((1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (9, 300)):
        status = training(checkpoint_failures=failures)
        of = configured(status)
        of = with_spec(of, checkpoint=of.spec.checkpoint.model_copy(update={"interval_minutes": 5}))
        assert due(status, seconds=wait - 0.1, of=of).actions == []
        assert due(status, seconds=wait, of=of).actions != []


# -- in flight


def followed(status, *checkpoints):
    draft = draft_of(status, checkpoints=checkpoints)
    follow(draft)
    return draft


def in_flight(**changes):
    return training(
        checkpoint_in_flight=CheckpointInFlight(name="t-c00002", reason="PreScale", pause=True), **changes
    )


def test_an_object_that_was_promised_and_is_not_there_is_created():
    """CS1, RC8: the leader died between the two."""
    draft = followed(in_flight())
    assert draft.actions == [CreateCheckpoint("t-c00002", "PreScale", pause=True)]
    assert draft.status.checkpoint_in_flight is not None


@pytest.mark.parametrize("state", ["", "Pending", "Staging"])
def test_an_open_one_stays_in_flight(state):
    draft = followed(in_flight(), view("t-c00002", state=state))
    assert draft.actions == []
    assert draft.status.checkpoint_in_flight.name == "t-c00002"


@pytest.mark.parametrize(
    ("changes", "failures"),
    [
        ({"state": "Committed"}, 0),
        ({"state": "GarbageCollected", "aborted": True}, 3),
        ({"state": "GarbageCollected"}, 0),
    ],
    ids=["committed", "aborted", "collected since"],
)
def test_a_decided_one_leaves_the_way_free_and_is_counted(changes, failures):
    """CS3, CS4, CS10."""
    draft = followed(in_flight(checkpoint_failures=2), view("t-c00002", **changes))
    assert draft.status.checkpoint_in_flight is None
    assert draft.status.checkpoint_failures == failures


def test_the_last_checkpoint_is_the_newest_that_can_be_restored():
    """CK1, RS1, FC01."""
    draft = followed(
        training(),
        view("t-c00001", step=5),
        view("t-c00002", step=7),
        view("t-c00003", step=9, health="Corrupt"),
        view("t-c00004", step=11, state="Staging"),
        view("t-c00005", step=13, state="GarbageCollected"),
    )
    assert (draft.status.last_checkpoint.name, draft.status.last_checkpoint.step) == ("t-c00002", 7)


def test_what_was_the_last_checkpoint_gives_way_when_it_turns_out_damaged():
    """RS2."""
    status = training(last_checkpoint=LastCheckpoint(name="t-c00002", step=7))
    draft = followed(status, view("t-c00001", step=5), view("t-c00002", step=7, health="Corrupt"))
    assert draft.status.last_checkpoint.name == "t-c00001"
