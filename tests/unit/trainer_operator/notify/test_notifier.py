"""From a Trainer's change to the message: the real reconciler and notifier, with doubles of API server and sender."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from runtime.tasks import TaskScope
from simulation.apiserver import Killed
from simulation.world import KEY, Operator, World, one_pass, request
from trainer_operator.api.resources import TRAINERS
from trainer_operator.api.status import Phase
from trainer_operator.notify.counters import NotifyCounters
from trainer_operator.notify.notifier import Notifier, Service
from trainer_operator.notify.outcome import Delivered, Refused
from trainer_operator.notify.triggers import Severity
from trainer_operator.topology.members import MemberId

W0 = MemberId("worker", 0)


class Receiver:
    """A double of everything beyond the sender; it outlives the operators."""

    def __init__(self):
        self.took, self.outcome, self.dies = [], Delivered(), None

    async def __call__(self, message):
        self.took.append((str(message.notice.trigger), message.key))
        if self.dies is not None:
            await self.dies.wait()  # the operator is gone before it hears the answer
        return self.outcome

    @property
    def triggers(self):
        return [trigger for trigger, _ in self.took]


@pytest.fixture
def world():
    return World(epochs=50)


@pytest.fixture
def receiver():
    return Receiver()


def operator(world, receiver, *, defaults=None):
    notifier = Notifier(
        (Service("team", receiver),),
        defaults={"team": Severity.Warning} if defaults is None else defaults,
        templates={},
        clock=world.clock,
        counters=NotifyCounters(CollectorRegistry(), ["team"]),
        wake=lambda key: None,
        is_leader=lambda: True,
    )
    return Operator(world, notifier)


async def passes(world, operator, count=1):
    for _ in range(count):
        await one_pass(world, [operator])
        world.tick(operator)


async def sends(operator):
    """Let the background task do what it can."""
    async with TaskScope() as scope:
        scope.spawn(operator.notices.run(), name="notifier")
        for _ in range(50):
            await asyncio.sleep(0)
        scope.cancel()


async def failing(world, operator):
    """Bring the Trainer to a failure that is told."""
    await passes(world, operator, 8)
    assert world.status.phase is Phase.RUNNING
    world.crash(W0)
    world.tick(operator)
    await operator.trainer.reconcile(request())
    assert world.status.phase is Phase.RECOVERING


async def test_a_failure_is_told_once_and_leaves_the_outbox(world, receiver):
    """NT1, NT3."""
    first = operator(world, receiver)
    await failing(world, first)
    assert len(world.status.outbox) == 1
    await sends(first)
    await first.trainer.reconcile(request())
    await sends(first)
    assert receiver.triggers == ["Recovering"]
    assert world.status.outbox == []


async def test_an_operator_that_dies_before_it_sends_loses_nothing(world, receiver):
    """NT3: a new leader sends it."""
    await failing(world, operator(world, receiver))
    assert receiver.took == []
    second = operator(world, receiver)
    await second.trainer.reconcile(request())
    await sends(second)
    await second.trainer.reconcile(request())
    assert receiver.triggers == ["Recovering"]
    assert world.status.outbox == []


async def test_an_operator_that_dies_while_it_sends_repeats_one_message_with_the_same_key(world, receiver):
    """NT3: at least once."""
    first = operator(world, receiver)
    await failing(world, first)
    receiver.dies = asyncio.Event()
    await sends(first)
    receiver.dies = None
    second = operator(world, receiver)
    await second.trainer.reconcile(request())
    await sends(second)
    await second.trainer.reconcile(request())
    third = operator(world, receiver)
    await third.trainer.reconcile(request())
    await sends(third)
    assert receiver.triggers == ["Recovering", "Recovering"]
    assert len({key for _, key in receiver.took}) == 1


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_a_message_and_the_change_it_tells_of_are_one_write(world, receiver, takes_effect):
    """NT3: whichever way the write goes, neither is there without the other."""
    first = operator(world, receiver)
    await passes(world, first, 8)
    world.crash(W0)
    world.tick(first)
    world.api.kill_at, world.api.kill_after_effect = len(world.api.writes) + 1, takes_effect
    with pytest.raises(Killed):
        await first.trainer.reconcile(request())
    await sends(first)
    assert receiver.took == [], "what is not known to be stored is not sent"
    assert (world.status.phase is Phase.RECOVERING) is takes_effect
    assert len(world.status.outbox) == takes_effect
    world.api.dead, world.api.kill_at = False, None
    second = operator(world, receiver)
    await passes(world, second, 3)
    await sends(second)
    assert receiver.triggers == ["Recovering"]


async def test_a_message_that_is_given_up_is_told_on_the_trainer(world, receiver):
    receiver.outcome = Refused("the destination answers 400")
    first = operator(world, receiver)
    await failing(world, first)
    await sends(first)
    await first.trainer.reconcile(request())
    told = [message for reason, message in first.events.seen if reason == "NotificationDropped"]
    assert told == ["the message Recovering to service team was given up: the destination answers 400"]
    assert world.status.outbox == []


async def test_a_reconcile_waits_for_no_destination_and_an_idle_trainer_costs_no_write(world, receiver):
    """NT4: the sender never answers, and passes go on as if there were none."""
    first = operator(world, receiver)
    await failing(world, first)
    receiver.dies = asyncio.Event()
    async with TaskScope() as scope:
        scope.spawn(first.notices.run(), name="notifier")
        await passes(world, first, 30)
        assert world.status.phase is Phase.RUNNING
        before = len(world.api.writes)
        for _ in range(10):
            await first.trainer.reconcile(request())
        assert len(world.api.writes) == before
        scope.cancel()


async def test_a_trainer_that_nobody_hears_of_has_no_outbox(world, receiver):
    first = operator(world, receiver, defaults={})
    await failing(world, first)
    assert (world.status.outbox, world.status.told) == ([], [])


async def test_a_route_to_no_service_is_told_in_a_condition_and_one_event(world, receiver):
    """NT1."""
    world.edit(notifications={"routes": [{"name": "mine", "service": "tema"}]})
    first = operator(world, receiver)
    await passes(world, first, 5)
    row = next(each for each in world.status.conditions if each.type == "NotificationsRouted")
    assert (row.status, row.reason) == ("False", "NoSuchService")
    assert row.message == "route mine names service tema, which does not exist; services are: team"
    assert [reason for reason, _ in first.events.seen].count("NoSuchService") == 1
    world.edit(notifications={"routes": [{"name": "mine", "service": "team"}]})
    await passes(world, first, 2)
    row = next(each for each in world.status.conditions if each.type == "NotificationsRouted")
    assert row.status == "True"


async def test_what_a_deleted_trainer_had_queued_is_still_sent(world, receiver):
    first = operator(world, receiver)
    await failing(world, first)
    world.api.log.delete(TRAINERS, KEY)
    await first.trainer.reconcile(request(KEY))
    await sends(first)
    assert receiver.triggers == ["Recovering"]
