"""Saves, restores and retention in any order, with caches that lag and operators that die: no reader is failed."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import RuntimeFault
from runtime.objects import key_of
from simulation.apiserver import Killed
from simulation.world import KEY, Operator, World, one_pass, request
from trainer_operator.api.names import restoring_epoch
from trainer_operator.api.status import Phase
from trainer_operator.topology.members import MemberId

W0, W1 = MemberId("worker", 0), MemberId("worker", 1)
ACTS = [
    "all",
    "trainer",
    "checkpoints",
    "tick",
    "crash",
    "lose",
    "freeze",
    "thaw",
    "retain",
    "discard",
    "die",
]
WEIGHTS = [12, 4, 6, 6, 1, 1, 2, 3, 1, 2, 1]


async def act(world, operators, name, chance):
    operator = operators[-1]
    match name:
        case "all":
            await one_pass(world, operators)
            world.tick(operators[-1])
        case "trainer":
            await alone(world, operators, operator.trainer, KEY)
        case "checkpoints":
            keys = [key_of(each) for each in world.checkpoints()]
            if keys:
                await alone(world, operators, operator.checkpoint, chance.choice(keys))
        case "tick":
            world.tick(operator)
        case "crash":
            world.crash(chance.choice([W0, W1]))
        case "lose":
            world.delete_pod(chance.choice(["t-worker-0", "t-worker-1"]))
        case "freeze":
            chance.choice([operator.checkpoints, operator.trainers]).freeze()
        case "thaw":
            operator.checkpoints.thaw()
            operator.trainers.thaw()
        case "retain":
            found = world.trainer.spec.checkpoint.dump()
            world.edit(checkpoint={**found, "maxRetention": chance.choice([1, 2])})
        case "discard":
            world.discard(chance.choice([None, *world.checkpoints()]))
        case "die":
            world.api.kill_at = len(world.api.writes) + chance.randint(1, 4)
            world.api.kill_after_effect = chance.random() < 0.5


async def alone(world, operators, reconciler, key):
    """Make one pass of one reconciler, while the others stand still."""
    try:
        await reconciler.reconcile(request(key))
    except RuntimeFault:
        return
    except (Killed, ExceptionGroup):
        assert world.api.dead
    if world.api.dead:
        world.api.dead, world.api.kill_at = False, None
        operators.append(Operator(world))


async def play(seed, length):
    """Play a random game, then let everything come to rest; return the world and its last operator."""
    chance = random.Random(seed)
    world = World(epochs=400, reading=5)
    world.edit(
        checkpoint={"bucket": "claim", "intervalMinutes": 0.05, "maxRetention": 1},
        retryPolicy={"backoffLimit": 1000, "maxDisruptions": 1000},
    )
    operators = [Operator(world)]
    for _ in range(30):
        await act(world, operators, "all", chance)
    for name in chance.choices(ACTS, WEIGHTS, k=length):
        await act(world, operators, name, chance)
    await act(world, operators, "thaw", chance)
    for _ in range(400):
        await act(world, operators, "all", chance)
        if world.status.phase is Phase.RUNNING and not any(restores(each) for each in world.checkpoints()):
            break
    return world


def restores(checkpoint):
    """Return the pins of restores on a checkpoint."""
    return [pin for pin in checkpoint.get("status", {}).get("pins") or () if restoring_epoch(pin)]


@given(st.integers(0, 2**32), st.integers(0, 120))
@settings(max_examples=25, deadline=None)  # each plays some minutes of a Trainer
def test_whoever_holds_a_pin_can_read_and_every_pin_is_dropped_in_the_end(seed, length):
    """IV12, RS4, GC2, GC3, IV8: the store itself fails a process whose checkpoint was collected while it read."""
    world = asyncio.run(play(seed, length))
    assert world.status.phase is Phase.RUNNING
    assert [pin for each in world.checkpoints() for pin in restores(each)] == []
