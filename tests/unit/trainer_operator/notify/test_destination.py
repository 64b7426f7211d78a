"""One service's queue, in simulated time, with a double of the sender."""

import asyncio
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from runtime.clock import LoopClock
from runtime.tasks import TaskScope
from runtime.testing.simloop import simulated
from simulation.cluster import trainer
from trainer_operator.notify.counters import NotifyCounters
from trainer_operator.notify.destination import CAPACITY, GIVE_UP, SEND_DEADLINE, Destination, Limits
from trainer_operator.notify.message import message
from trainer_operator.notify.notice import Notice
from trainer_operator.notify.outcome import Delivered, Later, Refused, of_http
from trainer_operator.notify.triggers import Trigger

ONE_A_SECOND = Limits(1.0, 1)


class SenderDouble:
    """Answers what is planned, then takes everything; `seen` has the time and the transition of each try."""

    def __init__(self, *planned):
        self.planned, self.seen, self.hangs = list(planned), [], False

    async def __call__(self, sent):
        self.seen.append((asyncio.get_running_loop().time(), sent.notice.transition))
        if self.hangs:
            await asyncio.Event().wait()
        return self.planned.pop(0) if self.planned else Delivered()


class Room:
    """A destination at work, and what it settled."""

    def __init__(self, sender, *, limits=ONE_A_SECOND):
        self.clock, self.sender, self.leads, self.settled = LoopClock(), sender, True, {}
        self.registry = CollectorRegistry()
        self.start = self.clock.monotonic()
        self.destination = Destination(
            "team",
            sender,
            limits=limits,
            clock=self.clock,
            counters=NotifyCounters(self.registry, ["team"]),
            settle=lambda done, why: self.settled.__setitem__(done.notice.transition, why),
            is_leader=lambda: self.leads,
        )

    def offer(self, transition, *, uid="u", trigger=Trigger.FAILED, due=0.0):
        at = self.clock.utcnow()
        of = trainer()
        of = of.model_copy(update={"metadata": of.metadata.model_copy(update={"uid": uid})})
        notice = Notice(trigger, "team", at, 1, transition, "text")
        self.destination.offer(message(of, notice, at + timedelta(seconds=due), {}))

    async def works(self, seconds):
        async with TaskScope() as scope:
            scope.spawn(self.destination.run(), name="destination")
            await asyncio.sleep(seconds)
            scope.cancel()

    def times(self):
        return [round(at - self.start, 3) for at, _ in self.sender.seen]

    def count(self, name, **labels):
        return self.registry.get_sample_value(f"trainer_notifications_{name}", {"service": "team", **labels})


@simulated
async def test_messages_go_in_order_and_no_faster_than_the_service_takes_them():
    """NT4: token bucket."""
    room = Room(SenderDouble(), limits=Limits(1.0, 2))
    for number in range(5):
        room.offer(str(number), uid=str(number))
    await room.works(10)
    assert [transition for _, transition in room.sender.seen] == list("01234")
    assert room.times() == [0, 0, 1, 2, 3]
    assert room.count("sent_total") == 5


@simulated
async def test_a_service_that_asks_for_time_gets_it_and_nothing_is_lost():
    """NT4, EC12: Retry-After."""
    room = Room(SenderDouble(Later("429", 120.0)))
    room.offer("a")
    room.offer("b", uid="v")
    await room.works(200)
    assert room.times() == [0, 120, 121]
    assert (room.settled, room.count("put_off_total")) == ({"a": "", "b": ""}, 1)


@simulated
async def test_a_dead_service_is_tried_ever_less_often_until_an_hour_is_over():
    room = Room(SenderDouble(*[Later("refused")] * 1000))
    room.offer("a")
    await room.works(GIVE_UP + 200)
    assert room.times()[:5] == [0, 2, 6, 14, 30]
    assert 55 < len(room.sender.seen) < 80
    assert "could not be delivered" in room.settled["a"]
    assert room.count("dropped_total", reason="too late") == 1


@simulated
async def test_a_service_that_hangs_is_left_after_its_time():
    sender = SenderDouble()
    sender.hangs = True
    room = Room(sender)
    room.offer("a")
    await room.works(SEND_DEADLINE + 3)
    assert room.times() == [0, SEND_DEADLINE + 2]
    assert room.settled == {}


@simulated
async def test_a_message_that_is_refused_for_good_does_not_hold_up_the_next():
    room = Room(SenderDouble(Refused("400")))
    room.offer("a")
    room.offer("b", uid="v")
    await room.works(5)
    assert room.settled == {"a": "400", "b": ""}
    assert room.count("dropped_total", reason="refused") == 1


@simulated
async def test_a_message_waits_until_it_is_due_and_does_not_hold_up_others():
    """NT3: the floor."""
    room = Room(SenderDouble())
    room.offer("late", due=300.0)
    room.offer("now", uid="v")
    await room.works(400)
    assert list(zip(room.times(), [each for _, each in room.sender.seen], strict=True)) == [
        (0, "now"),
        (300, "late"),
    ]


@simulated
async def test_a_newer_message_takes_the_place_of_one_that_waits():
    room = Room(SenderDouble())
    room.offer("a", due=300.0)
    room.offer("b", due=300.0)
    await room.works(400)
    assert [each for _, each in room.sender.seen] == ["b"]


@simulated
async def test_the_same_message_offered_by_every_pass_is_sent_once():
    room = Room(SenderDouble())
    for _ in range(10):
        room.offer("a")
    await room.works(20)
    assert len(room.sender.seen) == 1


@simulated
async def test_a_full_queue_drops_what_comes_and_counts_it():
    """NT4: bounded queue, drop counter."""
    room = Room(SenderDouble())
    for number in range(CAPACITY + 3):
        room.offer(str(number), uid=str(number))
    assert room.count("waiting") == CAPACITY
    assert room.count("dropped_total", reason="queue full") == 3
    assert sorted(room.settled) == ["1000", "1001", "1002"]


@simulated
async def test_nothing_is_sent_while_another_operator_leads():
    room = Room(SenderDouble())
    room.leads = False
    room.offer("a")
    await room.works(50)
    assert room.sender.seen == []


@pytest.mark.parametrize(
    ("status", "header", "outcome"),
    [
        (200, None, Delivered()),
        (202, None, Delivered()),
        (400, None, Refused("the destination answers 400")),
        (429, "30", Later("the destination answers 429", 30.0)),
        (503, "999999999", Later("the destination answers 503", 3600.0)),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", Later("the destination answers 429")),
        (429, "-5", Later("the destination answers 429")),
        (302, None, Later("the destination answers 302")),
        (401, None, Later("the destination answers 401")),
    ],
)
def test_an_http_answer_is_judged(status, header, outcome):
    """NT4, NE4."""
    assert of_http(status, header) == outcome
