"""The example's ring and parameter server over real sockets: equal floats, and neighbours that vanish."""

import contextlib
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "digits"))

import model
import wire
from ring import Ring
from server import Client, Server, follow


def free_places(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    places = [found.getsockname() for found in sockets]
    for found in sockets:
        found.close()
    return places


def on_threads(*functions):
    """Run functions at the same time; return their results or exceptions in order."""
    results = [None] * len(functions)

    def run(number, function):
        try:
            results[number] = function()
        except wire.Lost as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


@pytest.mark.parametrize(("world", "size"), [(1, 5), (2, 5), (3, 4810), (4, 2), (3, 400_000)])
def test_every_rank_gets_the_very_same_sum(world, size):
    """No two ranks round differently, also when a part is empty or larger than the socket's buffers."""
    vectors = [np.random.default_rng(rank).normal(size=size) for rank in range(world)]
    places = free_places(world)

    def rank(number):
        ring = Ring(places, number, token="t")
        with contextlib.closing(ring):
            return [ring.sum(vectors[number]) for _ in range(3)]

    results = on_threads(*[lambda number=number: rank(number) for number in range(world)])
    for sums in results:
        for total in sums:
            assert np.array_equal(total, results[0][0])
    assert np.allclose(results[0][0], np.sum(vectors, axis=0))


def test_a_neighbour_that_vanishes_ends_the_epoch_for_all():
    """ME3: nobody waits in a collective for ever."""
    places = free_places(3)

    def leaves():
        Ring(places, 1, token="t").close()

    def stays(number):
        ring = Ring(places, number, token="t")
        with contextlib.closing(ring):
            return ring.sum(np.ones(1000))

    results = on_threads(lambda: stays(0), leaves, lambda: stays(2))
    assert isinstance(results[0], wire.Lost)
    assert isinstance(results[2], wire.Lost)


def test_a_left_over_of_another_epoch_is_turned_away():
    """FT17, ME2, ME4, TR46: also when both lie at the same address."""
    places = free_places(2)
    sums = []

    def rank(number):
        ring = Ring(places, number, token="new")
        with contextlib.closing(ring):
            sums.append(ring.sum(np.ones(4)).tolist())

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    threads[0].start()
    with wire.connect(*places[0], source="127.0.0.1", patience=10) as intruder:
        wire.send(intruder, {"token": "old", "rank": 1})
        threads[1].start()
        with pytest.raises(wire.Lost):
            wire.receive(intruder)
    for thread in threads:
        thread.join(10)
    assert sums == [[2.0] * 4] * 2


class Job:
    """Stands in for the SDK's job."""

    ps_epoch, world = 1, 2

    def __init__(self):
        self.update = None

    def step(self, n, samples=0):
        pass

    def should_checkpoint(self, n):
        return False

    def save(self, n, state):
        raise AssertionError("nobody asked for a checkpoint")

    def snapshot(self, n, state):
        pass

    def pause_point(self):
        pass

    def ps_update(self):
        update, self.update = self.update, None
        return update

    def restore_at(self, step):
        return None


@pytest.fixture
def served():
    """A server of all tensors with two workers and three steps."""
    parameters = model.initial(7)
    state = model.to_state(parameters, model.zeros_like(parameters))
    applied = []
    server = Server(
        Job(),
        state,
        0,
        total=3,
        batch_size=lambda step: 1,
        consumed=lambda step: step,
        on_applied=applied.append,
        fresh=lambda: state,
    )
    (place,) = free_places(1)
    listener = wire.listen(*place)
    thread = threading.Thread(target=server.serve, args=(listener,))
    thread.start()
    clients = []

    def client(ps_epoch=1):
        found = Client([place], source="127.0.0.1", ps_epoch=ps_epoch, patience=10)
        clients.append(found)
        return found

    client.place = place
    yield client, applied, thread
    finish = client()
    finish.done(0)
    finish.done(1)
    thread.join(10)
    assert not thread.is_alive()
    for found in clients:
        found.close()
    listener.close()


def test_a_step_is_applied_once_however_often_it_is_pushed(served):
    """PS mode: a respawned worker repeats its step, the sum does not change."""
    client, applied, _ = served
    grads = {name: np.ones_like(value) for name, value in model.initial(7).items()}
    with contextlib.closing(client()) as again:
        workers = [(client(), rank) for rank in (0, 1, 1)]
        results = on_threads(
            *[lambda worker=worker: worker[0].push(1, worker[1], grads) for worker in workers]
        )
        late = again.push(1, 1, grads)
    for result in (*results, late):
        for name in model.NAMES:
            assert np.array_equal(result[name], results[0][name])
    expected = model.initial(7)["w1"] - model.LEARNING_RATE * 2
    assert np.allclose(results[0]["w1"], expected)
    assert applied == [1]
    assert client().pull()[0] == 1


def test_a_standby_gets_each_snapshot_once_and_learns_of_the_end(served):
    """PSR1: what it holds is the state after exactly the step that it is told, checked by its hash."""
    client, _, _ = served
    snapshots = follow(client.place, source="127.0.0.1", ps_epoch=1)
    step, state = next(snapshots)
    assert step == 0
    assert np.array_equal(state["w1"], model.initial(7)["w1"])
    grads = {name: np.ones_like(value) for name, value in model.initial(7).items()}
    workers = [(client(), rank) for rank in (0, 1)]
    for number in (1, 2, 3):
        results = on_threads(*[lambda w=w, step=number: w[0].push(step, w[1], grads) for w in workers])
    step, state = next(snapshots)
    assert step == 3, "the last step is a snapshot"
    assert np.array_equal(state["w1"], results[0]["w1"])
    assert "momentum.w1" in state
    for worker, rank in workers:
        worker.done(rank)
    assert list(snapshots) == []


def test_a_standby_of_another_server_epoch_is_refused(served):
    """PSR6."""
    client, _, _ = served
    with pytest.raises(wire.Lost, match="psEpoch is 1 here"):
        next(follow(client.place, source="127.0.0.1", ps_epoch=2))


def test_another_server_epoch_or_step_is_refused(served):
    """PSR6."""
    client, applied, _ = served
    with pytest.raises(wire.Lost, match="psEpoch is 1 here"):
        client(ps_epoch=2).pull()
    with pytest.raises(wire.Lost, match="step 3 is not at hand"):
        client().push(3, 0, model.initial(7))
    assert applied == []


def test_a_foreign_message_ends_its_connection_only(served):
    """CK5 in spirit: garbage on the port does not end the server."""
    client, _, _ = served
    peer = client()._peers[0]
    peer.sendall(b"\xff" * 64)
    with pytest.raises(wire.Lost):
        wire.receive(peer)
    assert client().pull()[0] == 0
