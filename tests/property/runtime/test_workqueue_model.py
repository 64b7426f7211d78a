"""The work queue against a model that is too simple to be wrong."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.testing.clock import SimClock
from runtime.workqueue import LONGEST_DELAY, QueueShutDown, WorkQueue

KEYS = st.sampled_from("abcdef")
PRIORITIES = st.sampled_from([-100, 0, 10])
DELAYS = st.sampled_from([-1.0, 0.0, 0.5, 3.0, 10.0, 1e12])


class QueueModel(RuleBasedStateMachine):
    """P5, Q1, Q2, Q4, Q5, Q6; RT21, RT24.

    The model keeps dirty keys in one list of (key, priority, due, place) and sorts it whenever it is asked.
    """

    def __init__(self):
        super().__init__()
        self.clock = SimClock()
        self.queue = WorkQueue("model", clock=self.clock)
        self.ready = {}  # key -> (priority, place)
        self.waiting = {}  # key -> (due, place, priority)
        self.processing = set()
        self.runs = {}
        self.place = 0
        self.is_shut = False

    def next_place(self):
        self.place += 1
        return self.place

    def promote(self):
        for key, (due, _, priority) in sorted(self.waiting.items(), key=lambda item: item[1][:2]):
            if due <= self.clock.monotonic():
                del self.waiting[key]
                self.make_ready(key, priority)

    def make_ready(self, key, priority):
        if key not in self.ready or self.ready[key][0] < priority:
            self.ready[key] = (priority, self.next_place())

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key, priority):
        self.queue.add(key, priority)
        if self.is_shut:
            return
        _, _, waiting_priority = self.waiting.pop(key, (0, 0, priority))
        self.make_ready(key, max(priority, waiting_priority))

    @rule(key=KEYS, delay=DELAYS, priority=PRIORITIES)
    def add_after(self, key, delay, priority):
        self.queue.add_after(key, delay, priority)
        if self.is_shut:
            return
        if delay > 0:
            self.promote()
        if delay <= 0:
            _, _, waiting_priority = self.waiting.pop(key, (0, 0, priority))
            self.make_ready(key, max(priority, waiting_priority))
        elif key in self.ready:
            self.make_ready(key, priority)
        else:
            due = self.clock.monotonic() + min(delay, LONGEST_DELAY)
            if key in self.waiting:
                known_due, _place, known_priority = self.waiting[key]
                if (min(due, known_due), max(priority, known_priority)) == (known_due, known_priority):
                    return
                due, priority = min(due, known_due), max(priority, known_priority)
            self.waiting[key] = (due, self.next_place(), priority)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 20.0]))
    def pass_time(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def get(self):
        self.promote()
        takeable = [(-priority, place, key) for key, (priority, place) in self.ready.items()]
        takeable = sorted(entry for entry in takeable if entry[2] not in self.processing)
        if not takeable and self.is_shut and not self.ready:
            try:
                self.queue.get_nowait()
            except QueueShutDown:
                return
            raise AssertionError("an empty queue that was shut down must say so")
        taken = self.queue.get_nowait()
        if not takeable:
            assert taken is None
            return
        negative, _, key = takeable[0]
        assert taken == (key, -negative)
        assert key not in self.processing, "a key ran twice at once"
        del self.ready[key]
        self.processing.add(key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data):
        key = data.draw(st.sampled_from(sorted(self.processing)))
        self.queue.done(key)
        self.processing.discard(key)

    @precondition(lambda self: not self.is_shut)
    @rule()
    def shutdown(self):
        self.promote()
        self.queue.shutdown()
        self.is_shut = True
        self.waiting.clear()

    @invariant()
    def length_counts_ready_keys(self):
        self.promote()
        assert len(self.queue) == len(self.ready)

    @invariant()
    def no_key_is_lost_or_in_two_places(self):
        queue = self.queue
        assert set(queue._ready) == set(self.ready)
        assert set(queue._waiting) == set(self.waiting)
        assert not set(queue._ready) & set(queue._waiting)
        assert set(queue._processing) == self.processing
        entries = [entry for line in queue._lines.values() for entry in line] + queue._given_back
        live = [entry[2] for entry in entries if queue._ready.get(entry[2]) is entry]
        assert sorted([*live, *queue._aside]) == sorted(self.ready), "each ready key has exactly one place"
        assert set(queue._aside) <= self.processing
        assert queue._superseded == len(entries) - len(live)
        assert queue._order == sorted(level for level, line in queue._lines.items() if line)

    def teardown(self):
        """Whatever happened, a consumer that goes on gets every ready key, and then nothing."""
        for key in sorted(self.processing):
            self.queue.done(key)
        self.promote()
        left = set(self.ready)
        while left:
            key, _ = self.queue.get_nowait()
            left.remove(key)
            self.queue.done(key)
        assert len(self.queue) == 0


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
