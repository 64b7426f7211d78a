"""The digits example: what makes its result independent of restarts and of the number of workers."""

import numpy as np
import pytest
from data import Schedule, load
from model import NAMES, accuracy, apply, from_state, gradient, initial, to_state, zeros_like
from server import owned


@pytest.fixture(scope="module")
def digits():
    return load()


def trained(digits, steps, *, world=1, state=None, start=0):
    """Train from a state; the gradient is the sum over the slices of `world` ranks."""
    schedule = Schedule(len(digits.train_labels), 64, seed=7)
    parameters, momentum = from_state(state) if state else (initial(7), zeros_like(initial(7)))
    for step in range(start + 1, steps + 1):
        batch = schedule.batch(step)
        parts = [batch.part(rank, world) for rank in range(world)]
        slices = [
            gradient(parameters, digits.train_images[part], digits.train_labels[part]) for part in parts
        ]
        total = {name: sum(part[name] for part in slices) for name in NAMES}
        apply(parameters, momentum, total, batch=len(batch.samples))
    return parameters, momentum


@pytest.mark.parametrize(("samples", "batch"), [(1437, 64), (10, 3), (12, 3), (5, 8)])
def test_every_sample_is_used_once_per_data_epoch(samples, batch):
    """ME8."""
    schedule = Schedule(samples, batch, seed=7)
    per_epoch = schedule.steps_per_epoch
    for data_epoch in range(2):
        steps = range(data_epoch * per_epoch + 1, (data_epoch + 1) * per_epoch + 1)
        batches = [schedule.batch(step) for step in steps]
        assert {found.data_epoch for found in batches} == {data_epoch}
        used = np.concatenate([found.samples for found in batches])
        assert sorted(used) == list(range(samples))
        assert schedule.consumed(steps[-1]) == (data_epoch + 1) * samples


def test_a_batch_depends_on_seed_and_step_alone():
    """ME8: asked in any order, after any restart."""
    forwards = [Schedule(100, 7, seed=3).batch(step).samples.tolist() for step in (1, 40, 2)]
    schedule = Schedule(100, 7, seed=3)
    assert [schedule.batch(step).samples.tolist() for step in (1, 40, 2)] == forwards
    assert Schedule(100, 7, seed=4).batch(1).samples.tolist() != forwards[0]


@pytest.mark.parametrize("world", [1, 2, 3, 5, 64, 100])
def test_the_slices_of_all_ranks_are_the_batch(world):
    """ME8: more ranks than samples leave some with nothing."""
    batch = Schedule(1437, 64, seed=7).batch(23)
    parts = [batch.part(rank, world) for rank in range(world)]
    assert np.concatenate(parts).tolist() == batch.samples.tolist()
    assert [batch.bounds(rank, world)[1] for rank in range(world - 1)] == [
        batch.bounds(rank, world)[0] for rank in range(1, world)
    ]


def test_a_restart_from_a_saved_state_is_bit_for_bit_the_undisturbed_run(digits):
    """RS, ME7."""
    whole = trained(digits, 60)
    half = trained(digits, 30)
    resumed = trained(digits, 60, state=to_state(*half), start=30)
    for name in NAMES:
        assert np.array_equal(whole[0][name], resumed[0][name])
        assert np.array_equal(whole[1][name], resumed[1][name])


def test_the_result_is_above_95_percent_and_hardly_depends_on_the_number_of_workers(digits):
    """Same seed, same accuracy within half a point."""
    results = [
        accuracy(trained(digits, 20 * 23, world=world)[0], digits.test_images, digits.test_labels)
        for world in (1, 3)
    ]
    assert min(results) > 0.95
    assert max(results) - min(results) <= 0.005


def test_training_and_test_images_are_strangers(digits):
    """The accuracy is of images that were never trained on."""
    assert len(digits.train_labels) + len(digits.test_labels) == 1797
    assert len(digits.test_labels) == 360
    assert digits.train_images.max() == 1.0


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
def test_each_tensor_has_one_server(servers):
    """PSR4: shards are disjoint."""
    names = [name for index in range(servers) for name in owned(index, servers)]
    assert sorted(names) == sorted(NAMES)
