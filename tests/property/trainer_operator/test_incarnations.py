"""Two incarnations of one member speak in any order: the newer one's state is what counts."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.testing.clock import SimClock
from simulation.views import WORKER, beat
from trainer_operator.topology.members import Members

UID = "uid-t"


@st.composite
def two_incarnations(draw):
    """Beats of an older and a newer attempt, all orders, with losses and repetitions."""
    old = [
        beat(attempt=0, boot="old", run=seq // 3, seq=seq, step=100 + seq)
        for seq in range(draw(st.integers(0, 5)))
    ]
    new = [
        beat(attempt=1, boot="new", run=seq // 2, seq=seq, step=seq, pod="second")
        for seq in range(draw(st.integers(1, 5)))
    ]
    twice = draw(st.lists(st.sampled_from(old + new), max_size=4))
    return draw(st.permutations(old + new + twice)), new[-1]


@given(two_incarnations())
def test_every_order_of_two_attempts_gives_the_state_of_the_newer(case):
    """TX7, FT07."""
    order, newest = case
    members = Members(SimClock())
    for one in order:
        members.accept(one)
    assert members.view(UID)[WORKER].beat == newest


@given(st.permutations([(run, seq) for seq, run in enumerate([0, 0, 1, 1, 2])]))
def test_every_order_of_the_runs_of_one_agent_gives_the_newest_run(order):
    """TX7, FT07: runs and sequence numbers rise together within a boot."""
    members = Members(SimClock())
    for run, seq in order:
        members.accept(beat(run=run, seq=seq, step=10 * run + seq))
    assert members.view(UID)[WORKER].beat.step == 24


@given(st.permutations([("old", n) for n in range(1, 4)] + [("new", n) for n in range(4)]))
def test_an_agent_that_started_again_is_never_displaced_by_its_former_self(order):
    """TX7, FT07: the operator has heard the old boot; from the first beat of the new one on, only that counts."""
    members = Members(SimClock())
    members.accept(beat(boot="old", seq=0, step=1000))
    heard = False
    for boot, seq in order:
        accepted = members.accept(beat(boot=boot, seq=seq, step=seq))
        heard = heard or boot == "new"
        if boot == "old":
            assert not (accepted and heard)
    assert members.view(UID)[WORKER].beat.boot == "new"
    assert members.view(UID)[WORKER].beat.seq == 3
    assert len(order) == 7


@given(two_incarnations())
def test_state_never_goes_back_while_beats_arrive(case):
    """TX7: what was believed once is only ever replaced by something newer."""
    order, _ = case
    members = Members(SimClock())
    seen = []
    for one in order:
        members.accept(one)
        seen.append(members.view(UID)[WORKER].beat.order)
    assert seen == sorted(seen)
