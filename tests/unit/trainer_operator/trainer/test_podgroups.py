"""PodGroups at the API server: what is asked for, what is watched, and what is written in which order."""

import pytest

from runtime.client.errors import Forbidden, InternalError, NotFound
from runtime.objects import ObjectKey
from simulation.world import KEY, Operator, World, one_pass, request
from trainer_operator.api.resources import TRAINERS
from trainer_operator.api.status import Phase
from trainer_operator.trainer.podgroup import RECHECK, SCHEDULER_PLUGINS, VOLCANO

GROUPS = VOLCANO.resource
MISSING = NotFound("no such kind", status=404, reason="NotFound")


def world_of(name="volcano"):
    world = World(epochs=50)
    world.edit(scheduling={"schedulerName": name, "queue": "research"})
    return world


def found(world, resource=GROUPS):
    return world.api.log.get(resource, KEY)


def enter_queue(world, phase="Inqueue"):
    world.api.log.put(GROUPS, {**found(world), "status": {"phase": phase}})


async def passes(world, operator, count=1):
    for _ in range(count):
        await one_pass(world, [operator])
        world.tick(operator)


async def running():
    world = world_of()
    operator = Operator(world)
    await passes(world, operator)
    enter_queue(world)
    await passes(world, operator, 8)
    return world, operator


async def reconcile(operator):
    return await operator.trainer.reconcile(request())


async def test_a_trainer_of_another_scheduler_asks_for_nothing():
    """TR17: no request, no watch."""
    world = World(epochs=50)
    await passes(world, Operator(world), 8)
    assert world.status.phase is Phase.RUNNING
    assert world.api.listed == []


async def test_the_group_is_written_first_and_pods_follow_once_it_may_enter():
    """TR39."""
    world = world_of()
    operator = Operator(world)
    await passes(world, operator, 3)
    assert [(verb, kind) for verb, kind, _ in world.api.writes if kind != "Trainer"] == [
        ("create", "PodGroup")
    ]
    assert world.pods() == []
    enter_queue(world)
    await passes(world, operator, 8)
    assert world.status.phase is Phase.RUNNING
    (owner,) = found(world)["metadata"]["ownerReferences"]
    assert owner["uid"] == world.uid
    assert world.api.listed == [GROUPS], "once in the life of the process"


async def test_a_group_that_waits_costs_no_write():
    """TR39, TR17."""
    world = world_of()
    operator = Operator(world)
    await passes(world, operator, 2)
    written = len(world.api.writes)
    for phase in ("Pending", "Pending", ""):
        enter_queue(world, phase)
        await passes(world, operator, 8)
    assert len(world.api.writes) == written


async def test_the_group_is_kept_by_a_replacement_and_given_back_by_suspend_and_end():
    """TR37, TR38."""
    world, operator = await running()
    uid = found(world)["metadata"]["uid"]
    world.delete_pod("t-worker-1")
    await passes(world, operator, 12)
    assert world.status.membership.epoch == 2
    assert found(world)["metadata"]["uid"] == uid
    world.edit(suspend=True)
    await passes(world, operator, 20)
    assert world.status.phase is Phase.SUSPENDED
    assert found(world) is None
    world.edit(suspend=False)
    await passes(world, operator, 3)
    assert found(world)["metadata"]["uid"] != uid
    assert world.pods() == []
    enter_queue(world)
    await passes(world, operator, 10)
    assert world.status.phase is Phase.RUNNING


async def test_the_group_follows_the_number_of_members():
    """TR38: changed in place."""
    world, operator = await running()
    uid = found(world)["metadata"]["uid"]
    world.scale(3)
    await passes(world, operator, 2)
    assert (found(world)["spec"]["minMember"], found(world)["metadata"]["uid"]) == (3, uid)


async def test_a_group_that_somebody_deleted_comes_back():
    """R3."""
    world = world_of("scheduler-plugins")
    operator = Operator(world)
    await passes(world, operator, 8)
    world.api.log.delete(SCHEDULER_PLUGINS.resource, KEY)
    await passes(world, operator)
    assert found(world, SCHEDULER_PLUGINS.resource)["spec"] == {"minMember": 2}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MISSING, "is not installed"),
        (Forbidden("no", status=403, reason="Forbidden"), "the operator may not list"),
    ],
)
async def test_a_kind_that_cannot_be_used_is_told_and_asked_for_again_in_half_a_minute(error, told):
    """TR39: then the group is made, if the pods are not all placed by then or later."""
    world = world_of()
    world.api.refused[GROUPS] = error
    operator = Operator(world)
    await passes(world, operator, 4)
    assert world.api.listed == [GROUPS]
    assert found(world) is None
    assert len(world.pods()) == 2
    first = next(each for each in world.status.conditions if each.type == "Scheduled")
    assert told in first.message or first.reason == "Placed"
    world.api.refused.clear()
    world.clock.advance(RECHECK)
    await passes(world, operator)
    assert world.api.listed == [GROUPS, GROUPS]
    assert found(world)["spec"]["minMember"] == 2


async def test_a_server_that_fails_is_asked_again():
    """TR19: nothing is decided without an answer."""
    world = world_of()
    world.api.refused[GROUPS] = InternalError("no", status=500)
    operator = Operator(world)
    with pytest.raises(InternalError):
        await reconcile(operator)
    assert world.api.writes == []


async def test_nothing_is_decided_before_the_cache_of_groups_is_filled():
    """R2: else a second one would be created, or pods before the first."""
    world = world_of()
    operator = Operator(world)
    start = operator.trainer._pod_groups._start

    def unfilled(resource):
        cache = start(resource)
        cache.has_synced = False
        return cache

    operator.trainer._pod_groups._start = unfilled
    result = await reconcile(operator)
    assert result.requeue_after > 0
    assert world.api.writes == []


async def test_a_group_of_a_namesake_is_not_taken_for_ours():
    """TR22: it belongs to the Trainer that had the name before, and goes with it."""
    world = world_of()
    operator = Operator(world)
    await passes(world, operator)
    old = world.api.log.get(TRAINERS, KEY)
    world.api.log.delete(TRAINERS, KEY)
    new = {"metadata": {"name": KEY.name, "namespace": KEY.namespace, "generation": 1}, "spec": old["spec"]}
    world.api.log.put(TRAINERS, new)
    with pytest.raises(Exception, match="PodGroup t exists and belongs to somebody else"):
        await reconcile(operator)
    assert world.pods() == []
    world.api.log.delete(GROUPS, ObjectKey(KEY.namespace, "t"))
    await reconcile(operator)
    assert found(world) is not None
