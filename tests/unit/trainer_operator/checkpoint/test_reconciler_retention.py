"""The Checkpoint reconciler at the end of a life: what is collected, pinned and swept, by whom and in which order."""

from datetime import timedelta

import pytest

from runtime.client.errors import Conflict
from runtime.clock import format_time
from runtime.objects import ObjectKey
from simulation.attempt import MINE, W0, Case, take
from simulation.world import KEY, Operator
from trainer_operator.api.resources import CHECKPOINTS
from trainer_operator.api.status import Phase
from trainer_operator.checkpoint.state import SWEEP_GRACE
from trainer_operator.topology.members import MemberId

W1 = MemberId("worker", 1)


@pytest.fixture
async def case():
    return await Case().start()


# -- retention


async def test_older_ones_are_collected_and_the_newest_stay(case):
    """GC1, CS5."""
    keys = await take(case, 4)
    assert [case.status(key)["state"] for key in keys] == ["GarbageCollected"] * 2 + ["Committed"] * 2
    assert case.world.collected == {case.status(key)["id"] for key in keys[:2]}
    assert not [c for c in case.status(keys[0])["conditions"] if c["type"] == "Aborted"]


async def test_one_that_is_held_is_never_collected(case):
    """GC1, CS8."""
    await case.ask(ObjectKey(KEY.namespace, "t-c00000"), hold=True)
    await case.run(8)
    await take(case, 3)
    assert case.status(ObjectKey(KEY.namespace, "t-c00000"))["state"] == "Committed"


async def test_steps_rise_from_one_committed_checkpoint_to_the_next(case):
    """IV5."""
    keys = await take(case, 4)
    steps = [case.status(key)["step"] for key in keys]
    assert steps == sorted(set(steps))


async def test_objects_of_long_collected_ones_go(case):
    """GC8."""
    for number in range(13):
        key = ObjectKey(KEY.namespace, f"t-c{number:05d}")
        await case.ask(key)
        found = case.world.api.log.get(CHECKPOINTS, key)
        status = {"state": "GarbageCollected", "committedAt": "2026-01-01T00:00:00Z"}
        case.world.api.log.put(CHECKPOINTS, {**found, "status": status})
    await case.look(ObjectKey(KEY.namespace, "t-c00012"))
    assert len(case.world.checkpoints()) == 10


# -- bases and pins


async def test_the_base_is_pinned_before_any_agent_hears_of_it_and_freed_with_the_outcome(case):
    """CS1, CS3, GC2, GC3, IV8, IV13."""
    (first,) = await take(case, 1)
    await case.ask()
    await case.look()
    assert case.writes() == [first.name, MINE.name]
    assert case.status(first)["pins"] == [MINE.name]
    assert case.status()["base"] == case.status(first)["id"]
    directives = case.operator.members.reply(case.world.uid, W0, term=0)["directives"]
    assert [d["args"]["base"] for d in directives if d["kind"] == "Checkpoint"] == [case.status()["base"]]
    await case.run(20)
    assert case.status()["state"] == "Committed"
    assert case.status(first).get("pins", []) == []
    assert len(case.writes()) == 4


async def test_a_pin_that_somebody_else_overtook_is_tried_again(case):
    """GC2: the mark may have come first."""
    (first,) = await take(case, 1)
    await case.ask()
    case.world.api.planned.append(Conflict("changed", status=409, reason="Conflict"))
    with pytest.raises(Conflict):
        await case.look()
    assert case.status() == {}
    await case.look()
    assert case.status(first)["pins"] == [MINE.name]


async def test_nothing_is_committed_on_a_base_that_waits_no_longer(case):
    """CS3: somebody took the pin away; what is referred to may be gone."""
    (first,) = await take(case, 1)
    await case.ask()
    await case.look()
    found = case.world.api.log.get(CHECKPOINTS, first)
    case.world.api.log.put(CHECKPOINTS, {**found, "status": {**found["status"], "pins": []}})
    await case.run(8)
    assert case.status()["state"] == "GarbageCollected"
    assert case.world.store[case.status()["id"]] == "abort"


async def test_the_mark_is_stored_before_any_agent_is_told_to_collect(case):
    """GC4, CP6."""
    keys = await take(case, 3)
    marked = case.status(keys[0])
    assert marked["state"] == "GarbageCollected"
    assert marked["markedAt"]


async def test_a_marked_one_is_collected_though_retention_wants_it_back(case):
    """GC6: its tombstone may be there already."""
    (first, _) = await take(case, 2)
    found = case.world.api.log.get(CHECKPOINTS, first)
    status = {**found["status"], "markedAt": "2026-01-01T00:00:00Z"}
    case.world.api.log.put(CHECKPOINTS, {**found, "status": status})
    await case.run(6)
    assert case.status(first)["state"] == "GarbageCollected"


# -- what an attempt left


async def give_up(case, *, ago=SWEEP_GRACE):
    """Have an attempt given up, so many seconds ago."""
    await case.ask()
    await case.look()
    case.world.store[case.status()["id"]] = "abort"
    await case.run(10)
    found = case.world.api.log.get(CHECKPOINTS, MINE)
    (condition,) = found["status"]["conditions"]
    since = case.world.clock.utcnow() - timedelta(seconds=ago)
    status = {
        **found["status"],
        "conditions": [{**condition, "lastTransitionTime": format_time(since)}],
    }
    case.world.api.log.put(CHECKPOINTS, {**found, "status": status})
    case.world.api.writes.clear()
    return since


async def test_what_it_stored_is_swept_ten_minutes_later_and_once(case):
    """CS4, IV13: one write of the object, and no order after it."""
    since = await give_up(case)
    await case.look()
    (told,) = case.operator.members.reply(case.world.uid, W0, term=0)["directives"]
    assert (told["args"]["op"], told["args"]["at"]) == ("collect", int(since.timestamp()))
    await case.run(10)
    assert case.world.collected == {case.status()["id"]}
    assert case.status()["sweptAt"]
    assert case.writes() == [MINE.name]
    assert case.told() == []
    assert await case.look() is None


async def test_within_the_grace_time_nothing_is_swept(case):
    """CS4, CS9: a write may be under way."""
    await give_up(case, ago=SWEEP_GRACE - 120)
    await case.run(5)
    assert case.world.collected == set()
    found = await case.look()
    assert 100 < found.requeue_after < 120


async def test_another_leader_orders_a_sweep_again(case):
    """CS4, GC6: what is not in the status was not heard."""
    await give_up(case)
    await case.look()
    case.operator = Operator(case.world)
    await case.run(10)
    assert case.status()["sweptAt"]


async def test_while_nobody_runs_a_janitor_sweeps(case):
    """CS4, CS5."""
    await give_up(case, ago=0)
    case.world.edit(suspend=True)
    await case.run(20)
    assert case.world.status.phase is Phase.SUSPENDED
    case.world.clock.advance(SWEEP_GRACE)
    await case.run(40)
    assert case.status()["sweptAt"]
    assert not any("janitor" in pod["metadata"]["name"] for pod in case.world.pods())


async def test_a_sweep_that_fails_again_and_again_is_left_to_a_later_collection(case):
    """CS4, PB5: the store took no record, so nothing says yet that it was given up."""
    case.world._store = lambda args: "undecided" if args["op"] == "collect" else {"outcome": "abort"}
    await give_up(case)
    await case.run(20)
    assert "sweptAt" not in case.status()
    assert case.writes() == []
    assert case.told() == []
    assert await case.look() is None


async def test_an_attempt_that_never_had_a_target_left_nothing(case):
    """CS4."""
    await case.ask()
    found = case.world.api.log.get(CHECKPOINTS, MINE)
    aborted = {"type": "Aborted", "status": "True", "reason": "PendingTimeout", "message": ""}
    condition = {**aborted, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"state": "GarbageCollected", "conditions": [condition]}
    case.world.api.log.put(CHECKPOINTS, {**found, "status": status})
    assert await case.look() is None
    assert case.told() == []


async def test_what_is_not_ours_is_told_by_the_collection_that_saw_it(case):
    """GC7."""
    original = case.world._store

    def store(args):
        found = original(args)
        return {**found, "unknown": ["ckpt/x/notes.txt", 7]} if args["op"] == "collect" else found

    case.world._store = store
    await take(case, 3)
    told = [message for reason, message in case.operator.events.seen if reason == "UnknownInStore"]
    assert len(told) == 1
    assert told[0].startswith("ckpt/x/notes.txt, 7 in the Trainer's folder")
