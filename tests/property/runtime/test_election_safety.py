"""Two or three electors, any network, any clocks: never two unfenced writers.

A discrete-event simulation in one true time. Each elector has its own monotonic clock (offset) and its own wall clock
(anything); requests take any time, are lost before or after the server acted, partitions come and go, an elector
stalls. Nobody deletes the lease: who does that by hand takes safety into his own hands. The only thing checked is what matters: at no true time are two fences open, and a guarded request that began
in time and may still be in flight ends before another elector's fence opens.
"""

import heapq
from dataclasses import replace
from itertools import count, pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.fence import Fence
from runtime.leaderelection.driver import ATTEMPT_TIMEOUT
from runtime.leaderelection.record import Lease
from runtime.leaderelection.step import (
    Candidate,
    Ended,
    Extend,
    Failed,
    Found,
    Leader,
    Read,
    Refused,
    Shut,
    Sleep,
    Stopped,
    Terms,
    Woken,
    Write,
    Written,
    step,
)


class World:
    """True time, the API server's lease, and what is to happen."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.now = 0.0
        self.lease: Lease | None = None
        self.version = 0
        self.agenda = []
        self.order = count()
        self.writers = []  # (elector, opened at, last moment a guarded request may act)

    def later(self, delay, action):
        heapq.heappush(self.agenda, (self.now + delay, next(self.order), action))

    def run(self, until):
        while self.agenda and self.agenda[0][0] <= until:
            self.now, _, action = heapq.heappop(self.agenda)
            action()

    def serve_write(self, lease: Lease) -> Lease | None:
        current = self.lease.version if self.lease else ""
        if lease.version != current:
            return None
        self.version += 1
        self.lease = replace(lease, version=str(self.version))
        return self.lease


class Elector:
    """The rim around `step`, as the driver is, with everything going wrong that can."""

    def __init__(self, world: World, number: int, *, offset: float, trouble: float):
        self.world = world
        self.terms = Terms(f"elector {number}")
        self.offset = offset
        self.trouble = trouble
        self.state = Candidate()
        self.fence = Fence(self)
        self.call = 0
        self.stall_until = 0.0

    def monotonic(self):
        return self.world.now + self.offset

    def utcnow(self):
        raise AssertionError("the election must not ask for the wall clock")

    async def sleep(self, seconds):
        raise AssertionError(seconds)

    def feed(self, event, *, call=None):
        if call is not None and call != self.call:
            return  # the attempt had been given up
        self.call += 1
        if self.world.now < self.stall_until:
            self.world.later(
                self.stall_until - self.world.now, lambda number=self.call: self.feed(event, call=number)
            )
            return
        self.state, actions = step(self.terms, self.state, event, now=self.monotonic())
        for action in actions:
            self.perform(action)

    def perform(self, action):
        rng, world = self.world.rng, self.world
        match action:
            case Extend(valid_until):
                if not self.fence.open(valid_until):
                    world.later(0, lambda number=self.call: self.feed(Refused(), call=number))
                else:
                    self.note_writer(valid_until - self.offset)
            case Shut():
                self.fence.close()
                self.end_writer()
            case Sleep(seconds):
                wait = min(seconds * rng.uniform(1.0, 1.2), self.time_left())
                world.later(wait, lambda number=self.call: self.feed(Woken(), call=number))
            case Read():
                self.request(lambda _: Found(world.lease), timed=False)
            case Write(lease):
                sent = self.monotonic()

                def serve(_):
                    stored = world.serve_write(lease)
                    return Written(stored, sent) if stored else Failed(conflict=True)

                self.request(serve, timed=True)

    def request(self, serve, *, timed):
        """Send a request: it may be lost, act late, act after we gave up, and its answer may be lost."""
        rng, world, number = self.world.rng, self.world, self.call
        limit = min(ATTEMPT_TIMEOUT, self.time_left())
        world.later(limit, lambda: self.feed(Failed(), call=number))
        if rng.random() < self.trouble * 0.4:
            return
        there = rng.choice([0.0, 0.01, rng.uniform(0, 6)]) if rng.random() < self.trouble else 0.01
        back = rng.choice([0.0, 0.01, rng.uniform(0, 6)]) if rng.random() < self.trouble else 0.01
        is_answer_lost = rng.random() < self.trouble * 0.4

        def act():
            event = serve(timed)
            if not is_answer_lost:
                world.later(back, lambda: self.feed(event, call=number))

        world.later(there, act)

    def time_left(self):
        if isinstance(self.state, Leader):
            # Never too short to move a clock that is a million seconds off: real time does not stand still either.
            return max(1e-9, self.state.valid_until - self.monotonic())
        return 1e9

    def note_writer(self, until):
        """Record the period in which this elector's guarded requests may act on the server."""
        world = self.world
        for position, (elector, opened, _) in enumerate(world.writers):
            if elector is self:
                world.writers[position] = (self, opened, until + self.terms.in_flight_grace)
                return
        world.writers.append((self, world.now, until + self.terms.in_flight_grace))

    def end_writer(self):
        """A stop comes after every guarded request has ended; a loss lets them run into their cap."""
        if isinstance(self.state, Ended) and self.state.lost:
            return
        self.world.writers = [
            (elector, opened, min(last, self.world.now) if elector is self else last)
            for elector, opened, last in self.world.writers
        ]


@given(
    seed=st.integers(0, 2**48),
    offsets=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=3),
    trouble=st.sampled_from([0.0, 0.2, 0.6, 0.9]),
    stops=st.lists(st.floats(5, 150), max_size=2),
    stalls=st.lists(st.tuples(st.floats(1, 150), st.floats(1, 40)), max_size=3),
)
@settings(max_examples=400, deadline=None)
def test_there_are_never_two_unfenced_writers(seed, offsets, trouble, stops, stalls):
    """P5, L2, L3, L6, L7; RT34, RT35, RT36."""
    world = World(Random(seed))
    electors = [
        Elector(world, number, offset=offset, trouble=trouble) for number, offset in enumerate(offsets)
    ]
    for elector in electors:
        world.later(world.rng.uniform(0, 3), lambda elector=elector: elector.feed(Woken()))
    for at, elector in zip(stops, electors, strict=False):
        world.later(at, lambda elector=elector: elector.feed(Stopped()))
    for at, length in stalls:
        victim = world.rng.choice(electors)
        world.later(
            at, lambda victim=victim, length=length: setattr(victim, "stall_until", world.now + length)
        )
    world.run(200)
    periods = sorted(world.writers, key=lambda writer: writer[1])
    for (one, _, last), (other, opened, _) in pairwise(periods):
        assert last <= opened + 1e-6, (one.terms.identity, last, other.terms.identity, opened)


@given(seed=st.integers(0, 2**48), offset=st.floats(-1e6, 1e6))
@settings(max_examples=50, deadline=None)
def test_somebody_leads_soon_after_a_leader_crashed_and_sooner_after_it_stopped(seed, offset):
    """G8: crash at most 18 s, clean at most 3 s."""
    for is_clean, limit in ((False, 18.0), (True, 3.0)):
        world = World(Random(seed))
        first, second = (Elector(world, number, offset=offset * number, trouble=0.0) for number in range(2))
        first.feed(Woken())
        world.later(1, lambda second=second: second.feed(Woken()))
        end = 30 + world.rng.uniform(0, 5)
        world.run(end)
        world.now = end
        assert isinstance(first.state, Leader)
        if is_clean:
            first.feed(Stopped())
        else:
            first.call += 1  # whatever it waited for never comes
        world.run(end + limit)
        assert isinstance(second.state, Leader), is_clean
