"""Records: the counters per member that outlive every operator."""

import pytest

from simulation.views import OTHER, WORKER
from trainer_operator.api.status import TrainerStatus
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.failures import Failure, FailureClass
from trainer_operator.trainer.records import Records


@pytest.fixture
def records():
    return Records(TrainerStatus())


def failed(kind=FailureClass.APP, *, member=WORKER, key="0/b/0", pod_gone=False):
    return Failure(member, key, kind, "Reason", "", pod_gone=pod_gone)


def reread(records):
    """The records as the next leader reads them from the wire."""
    return Records(TrainerStatus.read(records.status.dump()))


def test_an_undisturbed_member_has_no_entry(records):
    assert records.attempt(WORKER) == 0
    assert not records.handled(failed())
    assert not records.is_done(WORKER, 1)
    assert records.status.members == []


def test_a_failure_is_handled_once_also_for_the_next_leader(records):
    """RC4."""
    records.handle(failed())
    after = reread(records)
    assert after.handled(failed())
    assert not after.handled(failed(key="0/b/1"))
    assert not after.handled(failed(member=OTHER))


@pytest.mark.parametrize(
    ("kind", "failures", "disruptions"),
    [(FailureClass.APP, 1, 0), (FailureClass.OOM, 1, 0), (FailureClass.DISRUPTION, 0, 1)],
)
def test_a_failure_is_counted_by_its_class(records, kind, failures, disruptions):
    """RC3, RC4."""
    records.handle(failed(kind))
    entry = reread(records).get(WORKER)
    assert (entry.failures, entry.disruptions, entry.last_reason) == (failures, disruptions, "Reason")


def test_only_a_pod_that_is_gone_leads_to_another_attempt(records):
    """ME4, RC6."""
    records.handle(failed())
    assert records.attempt(WORKER) == 0
    records.handle(failed(key="0/pod", pod_gone=True))
    assert reread(records).attempt(WORKER) == 1


def test_moving_on_takes_the_next_name_and_counts_nothing(records):
    records.move_on(WORKER)
    entry = records.get(WORKER)
    assert (entry.attempt, entry.failures, entry.disruptions) == (1, 0, 0)


def test_entries_are_sorted_so_that_the_status_is_a_function_of_its_content(records):
    for member in (OTHER, MemberId("ps", 0), WORKER):
        records.handle(failed(member=member))
    assert [(entry.role, entry.index) for entry in records.status.members] == [
        ("ps", 0),
        ("worker", 0),
        ("worker", 1),
    ]


def test_settling_makes_the_loss_of_a_current_pod_news_again(records):
    records.handle(failed(key="0/pod", pod_gone=True))
    records.settle()
    assert records.get(WORKER).handled == ""
    assert records.attempt(WORKER) == 1


def test_settling_keeps_the_key_of_an_exit(records):
    """RC4: the same exit is never counted again."""
    records.handle(failed(key="0/b/3"))
    records.settle()
    assert records.handled(failed(key="0/b/3"))


def test_done_holds_for_its_epoch_only(records):
    """ST2: a later epoch may start the member again."""
    records.set_done(WORKER, 3)
    after = reread(records)
    assert after.is_done(WORKER, 3)
    assert not after.is_done(WORKER, 4)
    assert not after.is_done(OTHER, 3)


def test_nobody_is_done_before_the_first_epoch(records):
    assert not records.is_done(WORKER, 0)
