"""The store in memory keeps the contract too, so that what is proved on it says something."""

import pytest

from memorystore import Fault, MemoryStore
from storecontract import StoreContract, patient
from trainer_operator.agent.backends import Conflict, Exists, Throttled, Unreachable


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore(page=10)


@pytest.mark.parametrize(
    ("fault", "error", "kept"),
    [
        (Fault.LOST_REQUEST, Unreachable, False),
        (Fault.LOST_ANSWER, Unreachable, True),
        (Fault.LATE, Unreachable, False),
        (Fault.TWICE, Exists, True),
        (Fault.CONFLICT, Conflict, False),
        (Fault.EXISTS, Exists, False),
        (Fault.ERROR, Unreachable, False),
        (Fault.THROTTLED, Throttled, False),
    ],
)
def test_a_create_that_meets_a_fault_is_repeated_until_the_content_is_there(fault, error, kept):
    """DE2, FC09, CP14: whatever the first answer was, once it is settled the key holds what we wrote."""
    store = MemoryStore()
    store.plan(faults=[fault])
    with pytest.raises(error):
        store.create("record", b"mine")
    assert ("record" in store.objects) is kept
    store = MemoryStore()
    store.plan(faults=[fault])
    patient(store).create("record", b"mine")
    store.arrive()
    assert store.objects["record"] == b"mine"


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.CONFLICT, Fault.LATE, Fault.LOST_ANSWER])
def test_another_s_content_is_never_taken_for_ours(fault):
    """DE1, DE2."""
    store = MemoryStore()
    store.create("record", b"other")
    store.plan(faults=[fault])
    with pytest.raises(Exists):
        patient(store).create("record", b"mine")
    store.arrive()
    assert store.objects["record"] == b"other"


def test_patience_ends():
    """CS9: a store that stays away is reported, and not waited for for ever."""
    store = MemoryStore()
    store.plan(faults=[Fault.ERROR] * 100)
    pauses = []
    with pytest.raises(Unreachable):
        patient(store, pause=pauses.append).get("record", limit=1)
    assert len(pauses) == 6
    assert sum(pauses) < 15


def test_a_store_that_answers_late_each_time_is_not_waited_for_seven_times():
    """AG3: a start of a process waits for the check of its checkpoint."""
    store, now = MemoryStore(), [0.0]

    def late():
        now[0] += 15.0
        return now[0]

    store.plan(faults=[Fault.ERROR] * 100)
    with pytest.raises(Unreachable):
        patient(store, clock=late).get("record", limit=1)
    assert store.calls == 3
