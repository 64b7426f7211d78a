"""The Trainer reconciler: what it reads, in which order it writes, and what it costs when nothing happens."""

import orjson
import pytest

from runtime.client.errors import Conflict, InternalError, Invalid
from runtime.objects import PODS, ObjectKey
from simulation.world import KEY, Operator, World, one_pass, request
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS, TRAINING_PROFILES
from trainer_operator.api.status import Phase
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.apply import NameTaken

W0, W1 = MemberId("worker", 0), MemberId("worker", 1)


@pytest.fixture
def world():
    return World(epochs=50)


async def passes(world, operator, count=1):
    for _ in range(count):
        await one_pass(world, [operator])
        world.tick(operator)


async def running(world):
    operator = Operator(world)
    await passes(world, operator, 8)
    assert world.status.phase is Phase.RUNNING
    return operator


def kinds(world):
    return [(verb, kind) for verb, kind, _ in world.api.writes]


async def reconcile(operator):
    return await operator.trainer.reconcile(request())


# -- order of writes


async def test_the_status_is_stored_before_any_action_it_allows(world):
    """RC8: rule 3 of the architecture."""
    await reconcile(Operator(world))
    pods = [("create", "Pod"), ("create", "Pod")]
    assert kinds(world) == [("replace status", "Trainer"), *pods]


async def test_after_a_conflict_nothing_is_done_and_nobody_is_told(world):
    """MG2, RC8."""
    operator = Operator(world)
    world.api.planned.append(Conflict("changed", status=409, reason="Conflict"))
    with pytest.raises(Conflict):
        await reconcile(operator)
    assert (world.api.writes, world.pods(), operator.events.seen) == ([], [], [])
    assert operator.members.uids() == []


async def test_a_status_that_somebody_else_changed_meanwhile_is_not_overwritten(world):
    """ME1: compare and swap."""
    operator = Operator(world)
    operator.trainers.freeze()
    world.edit(epochs=51)
    with pytest.raises(Conflict):
        await reconcile(operator)
    assert world.pods() == []
    operator.trainers.thaw()
    await reconcile(operator)
    assert len(world.pods()) == 2


async def test_agents_hear_nothing_of_what_could_not_be_stored(world):
    """MG2."""
    operator = Operator(world)
    await passes(world, operator)
    await reconcile(operator)
    told = operator.members.reply(world.uid, W0, term=0)
    assert (told["epoch"], [d["kind"] for d in told["directives"]]) == (1, ["Prepare"])
    world.tick(operator)
    world.tick(operator)
    world.api.planned.append(InternalError("no", status=500))
    with pytest.raises(InternalError):
        await reconcile(operator)
    assert operator.members.reply(world.uid, W0, term=0)["directives"] == [], "no Go before Active is stored"


async def test_an_action_that_fails_leaves_the_decision_standing_and_is_made_up_for(world):
    """RC8, TR19."""
    operator = Operator(world)
    world.api.planned.extend([None, InternalError("no", status=500)])
    with pytest.raises(InternalError):
        await reconcile(operator)
    assert world.status.phase is Phase.PENDING
    await passes(world, operator)
    assert len(world.pods()) == 2


async def test_a_pod_hears_of_its_own_epoch_only_although_another_action_failed(world):
    """ME1, FT17: its predecessor's Go must not start it, while the next pass makes up for the action."""
    operator = await running(world)
    world.delete_pod("t-worker-0")
    world.delete_pod("t-worker-1")
    world.api.planned.extend([None, InternalError("no", status=500)])
    with pytest.raises(InternalError):
        await reconcile(operator)
    assert "t-worker-1-a1" in {pod["metadata"]["name"] for pod in world.pods()}
    told = operator.members.reply(world.uid, W1, term=0)
    assert "Go" not in {directive["kind"] for directive in told["directives"]}
    assert told["epoch"] == world.status.membership.epoch == 2


async def test_the_last_that_there_is_to_say_of_a_suspended_trainer_does_not_wait(world):
    """ST7, TR06: its last pod is gone, and nothing will be written after that."""
    operator = await running(world)
    world.edit(suspend=True)
    for _ in range(40):
        if world.status.phase is Phase.SUSPENDED and not world.pods():
            break
        await passes(world, operator)
    await reconcile(operator)
    conditions = {condition.type: condition.status for condition in world.status.conditions}
    assert (world.status.phase, world.status.workers, conditions["Degraded"]) == (Phase.SUSPENDED, 0, "False")
    writes = len(world.api.writes)
    await passes(world, operator, 20)
    assert len(world.api.writes) == writes


# -- reading one's own writes


async def test_the_newest_status_that_was_written_counts_although_the_cache_is_older(world):
    """R2: else each failure would be counted again by every pass until the cache came."""
    operator = await running(world)
    operator.trainers.freeze()
    world.crash(W1)
    world.tick(operator)
    for _ in range(3):
        await reconcile(operator)
    assert (world.status.failures, world.status.restarts, world.status.membership.epoch) == (1, 1, 2)


async def test_a_newer_object_in_the_cache_beats_what_was_written_before(world):
    """R2."""
    operator = await running(world)
    world.scale(3)
    await reconcile(operator)
    assert len(world.pods()) == 3


async def test_an_object_of_another_uid_beats_what_was_written_for_its_namesake(world):
    """TR21, TR22."""
    operator = await running(world)
    old = world.api.log.get(TRAINERS, KEY)
    world.api.log.delete(TRAINERS, KEY)
    new = {"metadata": {"name": KEY.name, "namespace": KEY.namespace, "generation": 1}, "spec": old["spec"]}
    world.api.log.put(TRAINERS, new)
    with pytest.raises(NameTaken):
        await reconcile(operator)  # until the garbage collector has removed the pods of the old one
    assert world.status.phase is Phase.PENDING
    assert world.status.membership.epoch == 0


async def test_nothing_is_decided_until_the_pods_that_were_created_are_seen(world):
    """R2, TR24: no second set of pods."""
    operator = Operator(world)
    operator.pods.freeze()
    await reconcile(operator)
    before = len(world.api.writes)
    result = await reconcile(operator)
    assert result.requeue_after is not None
    assert len(world.api.writes) == before
    operator.pods.thaw()
    await reconcile(operator)
    assert len(world.pods()) == 2


async def test_another_leader_that_finds_the_pods_takes_them_for_its_own(world):
    """R1, TR24: AlreadyExists of ours is success."""
    await reconcile(Operator(world))
    successor = Operator(world)
    successor.pods.freeze()
    successor.pods._frozen = (0, [])
    await reconcile(successor)
    assert len(world.pods()) == 2
    assert successor.events.seen == []


async def test_a_pod_of_somebody_else_under_our_name_is_said_and_left_alone(world):
    """TR22, TR24."""
    foreign = {"metadata": {"name": "t-worker-0", "namespace": KEY.namespace}, "spec": {}}
    world.api.log.put(PODS, foreign)
    operator = Operator(world)
    with pytest.raises(NameTaken, match="belongs to somebody else"):
        await reconcile(operator)
    assert [reason for reason, _ in operator.events.seen] == ["NameTaken"]
    assert world.api.log.get(PODS, ObjectKey(KEY.namespace, "t-worker-0"))["spec"] == {}


# -- what it costs


async def test_an_undisturbed_trainer_without_progress_costs_no_request(world):
    """TR17, ST7."""
    world.edit(checkpoint=None)
    operator = await running(world)
    for agent in world.agents.values():
        agent.paused = True
    await passes(world, operator, 8)
    before = len(world.api.writes)
    await passes(world, operator, 60)
    assert len(world.api.writes) == before


async def test_progress_is_written_at_most_every_five_seconds(world):
    """ST7."""
    world.edit(checkpoint=None)
    operator = await running(world)
    before, step = len(world.api.writes), world.step
    await passes(world, operator, 30)
    assert world.step == step + 30
    written = len(world.api.writes) - before
    assert 5 <= written <= 7
    assert world.status.global_step > step + 20


async def test_progress_that_waits_is_looked_at_again_when_its_turn_comes(world):
    """ST7."""
    world.edit(checkpoint=None)
    operator = await running(world)
    await reconcile(operator)
    world.tick(operator)
    before = len(world.api.writes)
    result = await reconcile(operator)
    assert len(world.api.writes) == before
    assert 0 < result.requeue_after <= 5


async def test_news_is_written_at_once(world):
    """ST7."""
    operator = await running(world)
    await reconcile(operator)
    world.crash(W0)
    world.tick(operator)
    await reconcile(operator)
    assert world.status.phase is Phase.RECOVERING


async def test_cached_objects_are_never_changed(world):
    """TR27, S4."""
    operator = await running(world)
    world.crash(W0)
    world.tick(operator)
    caches = (operator.trainers, operator.checkpoints)
    for cache in caches:
        cache.freeze()
    before = [orjson.dumps(cache._frozen[1]) for cache in caches]
    await reconcile(operator)
    await one_pass(world, [operator])
    assert [orjson.dumps(cache._frozen[1]) for cache in caches] == before


# -- whom it leaves alone


async def test_a_trainer_that_somebody_else_manages_is_not_touched(world):
    """TR36: no status, no pod, no event."""
    world.edit(managedBy="kueue.x-k8s.io/multikueue")
    operator = Operator(world)
    assert await reconcile(operator) is None
    assert (world.api.writes, operator.events.seen, operator.members.uids()) == ([], [], [])


def stored(world):
    return world.api.log.get(TRAINERS, KEY)


def readable(world):
    found = [each for each in stored(world)["status"]["conditions"] if each["type"] == "Readable"]
    return [(each["status"], each["observedGeneration"]) for each in found]


async def test_a_trainer_that_cannot_be_read_says_so_once_and_nothing_else_is_done(world):
    """TR28, TR30, EV1: by a condition of each generation and an Event, whichever operator looks at it."""
    operator = await running(world)
    before, told = stored(world)["status"], len(operator.events.seen)
    world.edit(epochs="many")
    world.crash(W0)
    writes = len(world.api.writes)
    for each in (operator, operator, Operator(world)):
        assert await reconcile(each) is None
    assert kinds(world)[writes:] == [("replace status", "Trainer")]
    ((reason, message),) = operator.events.seen[told:]
    assert reason == "NotReadable"
    assert message.startswith("spec.epochs: Input should be a valid integer")
    assert message.endswith(
        "; nothing is done with this Trainer until it is corrected, or made anew under the CRD of this operator"
    )
    assert readable(world) == [("False", 2)]
    rest = {name: value for name, value in stored(world)["status"].items() if name != "conditions"}
    assert rest == {name: value for name, value in before.items() if name != "conditions"}
    world.edit(epochs="more")
    await reconcile(operator)
    assert (readable(world), len(operator.events.seen)) == ([("False", 3)], told + 2)


async def test_a_trainer_that_can_be_read_again_goes_on(world):
    """TR30."""
    operator = await running(world)
    world.edit(epochs="many")
    await reconcile(operator)
    world.edit(epochs=50)
    world.crash(W0)
    world.tick(operator)
    await reconcile(operator)
    assert readable(world) == [("True", 3)]
    assert world.status.restarts == 1


@pytest.mark.parametrize("status", [{"conditions": "none"}, {"conditions": ["none"]}, "none"])
async def test_where_no_condition_can_be_added_an_event_says_it(world, status):
    """TR28: the status itself may be what cannot be read."""
    world.api.log.put(TRAINERS, {**stored(world), "status": status})
    operator = Operator(world)
    for _ in range(3):
        assert await reconcile(operator) is None
    assert (world.api.writes, [reason for reason, _ in operator.events.seen]) == ([], ["NotReadable"])


async def test_a_condition_that_the_api_server_refuses_is_an_event_and_not_tried_again(world):
    """TR30: under the new CRD the stored object may be no valid one; nothing is written in a loop."""
    world.edit(epochs="many")
    operator = Operator(world)
    world.api.planned.append(Invalid("spec.epochs", status=422, reason="Invalid"))
    for _ in range(3):
        assert await reconcile(operator) is None
    assert (world.api.writes, [reason for reason, _ in operator.events.seen]) == ([], ["NotReadable"])


async def test_a_condition_that_was_not_stored_for_another_write_is_tried_again(world):
    """TR30, EV1: and nothing was said meanwhile."""
    world.edit(epochs="many")
    operator = Operator(world)
    world.api.planned.append(Conflict("changed", status=409, reason="Conflict"))
    with pytest.raises(Conflict):
        await reconcile(operator)
    assert operator.events.seen == []
    await reconcile(operator)
    assert readable(world) == [("False", 2)]


@pytest.mark.parametrize("leaves", ["another operator", "deleted"])
async def test_nothing_is_said_of_what_is_not_ours_or_on_its_way_out(world, leaves):
    """TR36."""
    world.edit(epochs="many", **({"managedBy": "kueue.x-k8s.io/multikueue"} if leaves != "deleted" else {}))
    if leaves == "deleted":
        found = stored(world)
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        world.api.log.put(TRAINERS, found)
    operator = Operator(world)
    assert await reconcile(operator) is None
    assert (world.api.writes, operator.events.seen) == ([], [])


async def test_a_trainer_that_is_not_there_is_nothing_to_do(world):
    world.api.log.delete(TRAINERS, KEY)
    assert await reconcile(Operator(world)) is None


async def test_a_profile_that_cannot_be_read_is_waited_for_like_one_that_is_missing(world):
    """TR28, TN7."""
    world.edit(profile="shared")
    profile = {"metadata": {"name": "shared", "namespace": KEY.namespace}, "spec": {"envVars": "none"}}
    world.api.log.put(TRAINING_PROFILES, profile)
    operator = Operator(world)
    await reconcile(operator)
    assert world.pods() == []
    assert [reason for reason, _ in operator.events.seen] == ["ProfileNotFound"]


# -- the end of a Trainer


async def test_agents_of_a_trainer_that_is_being_deleted_are_told_to_end(world):
    """AG7."""
    operator = await running(world)
    found = world.api.log.get(TRAINERS, KEY)
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    world.api.log.put(TRAINERS, found)
    assert await reconcile(operator) is None
    assert operator.members.reply(world.uid, W0, term=0)["close"] is True


async def test_a_trainer_that_is_gone_is_forgotten(world):
    """TR21: whether or not its last write was our own."""
    operator = await running(world)
    await passes(world, operator, 3)
    assert operator.members.uids() == [world.uid]
    world.api.log.delete(TRAINERS, KEY)
    await reconcile(operator)
    assert operator.members.uids() == []


async def test_a_trainer_that_was_made_anew_under_its_name_replaces_the_old_one(world):
    """TR21, TR22."""
    operator = await running(world)
    old = world.api.log.get(TRAINERS, KEY)
    world.api.log.delete(TRAINERS, KEY)
    metadata = {"name": KEY.name, "namespace": KEY.namespace, "generation": 1}
    world.api.log.put(TRAINERS, {"metadata": metadata, "spec": old["spec"]})
    with pytest.raises(NameTaken):
        await reconcile(operator)
    assert world.uid not in operator.members.uids()


async def test_members_beyond_a_smaller_size_are_forgotten_with_their_pods(world):
    """ME6."""
    operator = await running(world)
    world.scale(1)
    await passes(world, operator, 40)
    assert set(operator.members.view(world.uid)) == {W0}


async def test_a_checkpoint_that_is_due_is_created_once_and_owned(world):
    """CS1, R1."""
    operator = await running(world)
    await passes(world, operator, 4)
    created = [name for verb, kind, name in world.api.writes if (verb, kind) == ("create", "Checkpoint")]
    assert created[0] == "t-c00001"
    assert len(created) == len(set(created))
    first = world.api.log.get(CHECKPOINTS, ObjectKey(KEY.namespace, "t-c00001"))
    assert first["spec"]["trainerRef"] == {"name": "t", "uid": world.uid}
    assert first["metadata"]["ownerReferences"][0]["uid"] == world.uid
