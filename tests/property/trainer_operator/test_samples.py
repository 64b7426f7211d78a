"""Samples across changes of members: each one once in a pass over the data, but for recorded rollbacks (ME8).

The operator decides members, steps and restores; the training code keeps a cursor with its state and gives each rank a
stripe of the global batch, whose size grows with the number of workers. Together they must neither lose nor repeat a
sample.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from property.trainer_operator.test_membership import FAULTS, inject, resume
from simulation.cluster import Cluster, trainer
from trainer_operator.api.status import Phase

SAMPLES = 61
BATCH = 3
"""Samples of a worker in a step."""
VOLUNTARY = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("scale"), st.integers(1, 5)),
        st.tuples(st.just("suspend"), st.just(0)),
    ),
    max_size=10,
)


class Data:
    """What was consumed by the steps that count, and the cursor that was saved with each of them."""

    def __init__(self):
        self.cursors = {0: 0}
        self.consumed = {}

    def train(self, step, world):
        assert step not in self.consumed, (
            f"samples of step {step} were used again without a rollback on record"
        )
        assert step - 1 in self.cursors, f"step {step} does not follow a step that counts"
        first = self.cursors[step - 1]
        end = min(first + BATCH * world, (first // SAMPLES + 1) * SAMPLES)
        stripes = [range(first + rank, end, world) for rank in range(world)]
        self.consumed[step] = sorted(sample for stripe in stripes for sample in stripe)
        self.cursors[step] = end

    def roll_back(self, to):
        """Forget what is to be repeated; cursors are those of a state that was saved."""
        self.consumed = {step: samples for step, samples in self.consumed.items() if step <= to}
        self.cursors = {step: cursor for step, cursor in self.cursors.items() if step <= to}

    def check(self):
        used = Counter(sample for samples in self.consumed.values() for sample in samples)
        assert set(used.values()) <= {1}
        assert sorted(used) == list(range(len(used))), "a sample was left out"


def play(cluster, disturbances, *, at_most=900):
    data = Data()
    for kind, number in [*disturbances, ("wait", 3)]:
        inject(cluster, kind, number)
        for _ in range(number if kind == "wait" else 2):
            one_pass(cluster, data)
    cluster.down.clear()
    resume(cluster)
    for _ in range(at_most):
        one_pass(cluster, data)
        if cluster.trainer.status.phase in {Phase.SUCCEEDED, Phase.FAILED}:
            break
    data.check()
    return data


def one_pass(cluster, data):
    before = cluster.trainer.status.rollbacks
    cluster.reconcile()
    status = cluster.trainer.status
    if status.rollbacks > before:
        data.roll_back(status.last_rollback.to_step)
    trained = len(cluster.trained)
    cluster.tick()
    for _, _, step in cluster.trained[trained:]:
        data.train(step, status.membership.world)


@pytest.mark.parametrize("servers", [0, 1])
@settings(max_examples=40)
@given(disturbances=FAULTS)
def test_each_sample_is_used_once_but_for_recorded_rollbacks(servers, disturbances):
    """ME8, ME7: whatever fails and whoever joins or leaves."""
    cluster = Cluster(trainer(workers=2, servers=servers, epochs=4))
    play(cluster, disturbances)


@pytest.mark.parametrize("servers", [0, 1])
@settings(max_examples=40)
@given(changes=VOLUNTARY)
def test_changes_that_were_asked_for_repeat_no_sample_at_all(servers, changes):
    """FT12, ME8, ME7, ME6: scaling and suspending lose no step, so nothing is used twice even with a record of it."""
    cluster = Cluster(trainer(workers=2, servers=servers, epochs=4))
    data = play(cluster, changes)
    assert cluster.trainer.status.rollbacks == 0
    assert cluster.trainer.status.phase is Phase.SUCCEEDED
    assert sum(len(samples) for samples in data.consumed.values()) == data.cursors[max(data.cursors)]


def test_the_ledger_notices_a_sample_that_is_used_twice():
    """ME8: no test that cannot fail."""
    data = Data()
    data.train(1, 2)
    data.train(2, 2)
    with pytest.raises(AssertionError, match="without a rollback"):
        data.train(2, 3)
    data.roll_back(1)
    data.train(2, 3)
    data.check()
    assert data.cursors[2] == 15
