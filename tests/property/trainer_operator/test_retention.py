"""Retention: which checkpoints may go, whatever there is."""

from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.checkpoint.retention import KEEP_COLLECTED, Kept, to_forget, to_retire

STATES = ["Pending", "Staging", "Committed", "GarbageCollected", ""]
HEALTHS = ["Healthy", "Unknown", "Degraded", "Corrupt", ""]


@st.composite
def checkpoints(draw):
    count = draw(st.integers(0, 12))
    return [
        Kept(
            name=f"c{number}",
            step=draw(st.integers(0, 8)),
            sequence=number,
            state=draw(st.sampled_from(STATES)),
            health=draw(st.sampled_from(HEALTHS)),
            hold=draw(st.booleans()),
            pins=draw(st.sampled_from([(), ("restore/1",)])),
        )
        for number in range(count)
    ]


RETENTION = st.integers(1, 5)


def committed(found):
    return [c for c in found if c.state == "Committed"]


def sound(found):
    return [c for c in committed(found) if c.health != "Corrupt"]


def newest(found):
    return max(found, key=lambda c: (c.step, c.sequence)).name


@given(checkpoints(), RETENTION)
def test_the_newest_and_the_newest_sound_one_stay(found, retention):
    """GC1, IV6."""
    gone = to_retire(found, retention)
    if committed(found):
        assert newest(committed(found)) not in gone
    if sound(found):
        assert newest(sound(found)) not in gone


@given(checkpoints(), RETENTION)
def test_as_many_sound_ones_stay_as_are_wanted(found, retention):
    """IV6: damaged ones do not count."""
    gone = to_retire(found, retention)
    left = [c for c in sound(found) if c.name not in gone]
    assert len(left) >= min(retention, len(sound(found)))


@given(checkpoints(), RETENTION)
def test_only_committed_ones_go_and_none_that_is_held_or_pinned(found, retention):
    """GC1, GC2, RS4, FC01."""
    by_name = {c.name: c for c in found}
    for name in to_retire(found, retention):
        assert by_name[name].state == "Committed"
        assert not by_name[name].hold
        assert not by_name[name].pins


@given(checkpoints(), RETENTION)
def test_the_last_ones_stay_although_they_are_damaged(found, retention):
    """GC1: never the last one; a damaged one may be all there is."""
    if committed(found) and not sound(found):
        assert to_retire(found, retention) == set()


@given(checkpoints(), RETENTION)
def test_what_may_go_does_not_depend_on_the_order_of_a_listing(found, retention):
    assert to_retire(found, retention) == to_retire(list(reversed(found)), retention)


@given(checkpoints(), RETENTION)
def test_once_collected_nothing_more_goes(found, retention):
    """GC1: retention comes to rest."""
    gone = to_retire(found, retention)
    left = [c for c in found if c.name not in gone]
    assert to_retire(left, retention) == set()


@given(checkpoints(), RETENTION)
def test_everything_beyond_the_limit_that_nobody_protects_goes(found, retention):
    """GC1: the store does not grow for ever."""
    gone = to_retire(found, retention)
    left = [c for c in sound(found) if c.name not in gone and not c.hold and not c.pins]
    assert len(left) <= retention + 1


@given(st.integers(0, 30), st.integers(0, 5))
def test_the_last_ten_objects_of_collected_ones_stay(collected, others):
    """GC8."""
    found = [Kept(f"g{n}", n, n, "GarbageCollected", "") for n in range(collected)]
    found += [Kept(f"c{n}", n, n, "Committed", "Healthy") for n in range(others)]
    assert to_forget(found) == {f"g{n}" for n in range(max(0, collected - KEEP_COLLECTED))}
