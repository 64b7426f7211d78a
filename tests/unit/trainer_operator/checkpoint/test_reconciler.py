"""The Checkpoint reconciler: one object from Pending to its end, and what agents are told on the way."""

import pytest

from runtime.client.errors import Conflict
from runtime.objects import ObjectKey
from simulation.attempt import MINE, W0, Case, take
from simulation.world import KEY, Operator
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.checkpoint.commit import human_size
from trainer_operator.checkpoint.view import COMMIT_TRIES
from trainer_operator.topology.beat import Ack
from trainer_operator.topology.members import MemberId

W1 = MemberId("worker", 1)


@pytest.fixture
async def case():
    return await Case().start()


# -- the way to a commit


async def test_a_checkpoint_that_a_user_asks_for_is_saved_decided_and_committed(case):
    """CS1, CS2, CS3."""
    await case.ask()
    await case.run(8)
    status = case.status()
    assert (status["state"], status["health"], status["copies"]) == ("Committed", "Healthy", 1)
    assert case.world.store[status["id"]] == "commit"
    assert status["id"].startswith(f"{status['step']:012d}-e1-")
    assert case.world.told[status["id"]] == {"commit"}
    assert "CheckpointCommitted" in [reason for reason, _ in case.operator.events.seen]


async def test_the_life_of_an_object_is_a_few_writes(case):
    """IV13: at most 8, never one per ack."""
    await case.ask()
    await case.run(30)
    assert len(case.writes()) == 2


async def test_the_target_is_stored_before_any_agent_hears_of_it(case):
    """CS2, MG2."""
    await case.ask()
    case.world.api.planned.append(Conflict("changed", status=409, reason="Conflict"))
    with pytest.raises(Conflict):
        await case.look()
    assert case.told() == []
    await case.look()
    assert case.status()["state"] == "Staging"
    assert case.told() == [("Checkpoint", None)]


async def test_acks_without_the_stores_decision_commit_nothing(case):
    """CS3, DE1."""
    await case.ask()
    await case.look()
    case.world._store = lambda args: None  # the store does not answer
    await case.run(20)
    assert case.status()["state"] == "Staging"
    assert ("Store", "decide") in case.told()


async def test_another_leader_reads_the_decision_and_never_stages_again(case):
    """CS3, RC8: the agents still have their acks, the store its decision."""
    await case.ask()
    while case.world.store == {}:
        await case.look()
        case.world.tick(case.operator)
    before = case.status()
    case.operator = Operator(case.world)
    for _ in range(4):
        case.world.tick(case.operator)
        await case.look()
    after = case.status()
    assert (after["state"], after["id"]) == ("Committed", before["id"])
    assert len(case.world.store) == 1


async def test_a_leader_that_lost_the_race_follows_what_the_store_says(case):
    """DE1, FC12: create-if-absent, the first one wins; nobody is told both."""
    await case.ask()
    await case.look()
    ckpt = case.status()["id"]
    case.world.store[ckpt] = "abort"
    await case.run(10)
    status = case.status()
    assert status["state"] == "GarbageCollected"
    assert [c["type"] for c in status["conditions"]] == ["Aborted"]
    assert case.world.told[ckpt] == {"abort"}


async def test_the_newest_status_that_was_written_counts_although_the_cache_is_older(case):
    """R2, CK2: else the object would get a second target."""
    await case.ask()
    case.operator.checkpoints.freeze()
    await case.look()
    first = case.status()["id"]
    await case.look()
    assert case.status()["id"] == first
    assert len(case.writes()) == 1


# -- targets that were passed


async def test_a_target_that_was_passed_is_replaced_and_aborted_in_the_store(case):
    """CS2, CK2."""
    await case.ask()
    await case.look()
    first = case.status()["id"]
    case.answer(W0, f"checkpoint:{first}", ok=False, error="past")
    await case.look()
    second = case.status()
    assert second["missed"] == [first]
    assert second["id"] != first
    assert second["state"] == "Staging"
    assert ("Store", "decide") in case.told(W0)
    await case.run(10)
    assert case.status()["state"] == "Committed"
    assert case.world.store[first] == "abort"


async def test_after_several_misses_it_is_given_up(case):
    """CS2, CS4."""
    await case.ask()
    case.world._obey_really = case.world._obey
    case.world._obey = lambda agent, kind, args: (
        "past" if kind == "Checkpoint" else case.world._obey_really(agent, kind, args)
    )
    await case.run(25)
    status = case.status()
    assert status["state"] == "GarbageCollected"
    assert status["conditions"][0]["reason"] == "TargetPassed"
    assert len(status["missed"]) == 4
    assert set(case.world.store.values()) == {"abort"}
    assert len(case.world.store) == 5


async def test_a_miss_is_believed_while_another_holder_was_not_heard_yet():
    """CS2: a new leader hears of the holders one after the other."""
    case = await Case(replicationFactor=2).start()
    await case.ask()
    await case.look()
    first = case.status()["id"]
    case.operator = Operator(case.world)
    case.answer(W0, f"checkpoint:{first}", ok=False, error="past")
    await case.look()
    assert case.status()["missed"] == [first]


# -- giving up


async def test_a_checkpoint_is_given_up_when_nobody_trains_in_time(case):
    """CS4, CS9: nothing was stored, so nothing is decided."""
    case.world.edit(suspend=True)
    await case.run(10)
    await case.ask()
    await case.run(59)
    assert case.status().get("state") in {None, "Pending"}
    await case.run(5)
    assert case.status()["state"] == "GarbageCollected"
    assert case.status()["conditions"][0]["reason"] == "PendingTimeout"
    assert case.status().get("id") is None


async def test_a_checkpoint_of_an_epoch_that_ended_is_aborted_in_the_store_first(case):
    """CS4, DE1."""
    await case.ask()
    await case.look()
    case.world.crash(W1)
    await case.run(40)
    status = case.status()
    assert (status["state"], status["conditions"][0]["reason"]) == ("GarbageCollected", "EpochEnded")
    assert case.world.store[status["id"]] == "abort"


async def test_a_checkpoint_that_is_never_saved_is_aborted_at_its_deadline(case):
    """CS9, IV7."""
    case.world.edit(checkpoint={"bucket": "claim", "intervalMinutes": 500, "stagingTimeoutSeconds": 20})
    case.world._save = lambda agent: None
    await case.ask()
    await case.run(15)
    assert case.status()["state"] == "Staging"
    await case.run(15)
    assert case.status()["conditions"][0]["reason"] == "StagingTimeout"


async def test_a_commit_that_cannot_be_written_again_and_again_is_given_up(case):
    """CS4, DE1: each try has an id of its own, so that an agent makes it."""
    await case.ask()
    original = case.world._store
    tries = []

    def store(args):
        if args["outcome"] == "commit":
            tries.append(args)
            return "disk full"
        return original(args)

    case.world._store = store
    await case.run(30)
    assert len(tries) >= COMMIT_TRIES
    assert case.status()["state"] == "GarbageCollected"
    assert case.world.store[case.status()["id"]] == "abort"


# -- the store


def refuse_store(case, error):
    """Have agents fail every copy and every record, as they do when the store refuses them."""

    def fail(agent):
        target = agent.target
        if target is not None and not any(ack.ckpt == target["ckpt"] for ack in agent.acks):
            agent.acks += [
                Ack(target["ckpt"], target["shard"], copy, ok=False, error=error) for copy in target["copies"]
            ]

    case.world._save = fail
    case.world._store = lambda args: error or "refused"


async def test_a_store_that_takes_no_record_ends_the_attempt_with_its_own_words(case):
    """PB4, IV7: without a majority nobody can ever commit, so no DECISION is needed."""
    refuse_store(case, "NoConditionalWrites: s3://b/ ignores If-None-Match")
    await case.ask()
    await case.run(20)
    status = case.status()
    assert status["state"] == "GarbageCollected"
    (condition,) = status["conditions"]
    assert (condition["reason"], condition["message"]) == (
        "NoConditionalWrites",
        "s3://b/ ignores If-None-Match",
    )
    assert case.world.store == {}


@pytest.mark.parametrize("error", ["the process ended", "Nonsense: what", "", None, "Full"])
async def test_words_of_an_agent_that_name_no_problem_of_the_store_are_no_reason(case, error):
    """PS4: reasons come from a closed list."""
    refuse_store(case, error)
    await case.ask()
    await case.run(20)
    assert case.status()["conditions"][0]["reason"] == "CopiesFailed"


@pytest.mark.parametrize("at", ["save", "commit"])
async def test_a_state_of_another_layout_is_given_up_in_the_agent_s_words(case, at):
    """QR4, FC06: whether its process or the commit finds it."""
    store, told = case.world._store, "LayoutChanged: tensor w is absent, expected <f4 of shape [3]"
    if at == "save":
        refuse_store(case, told)
    case.world._store = lambda args: told if args["outcome"] == "commit" else store(args)
    await case.ask()
    await case.run(20)
    (condition,) = case.status()["conditions"]
    assert f"{condition['reason']}: {condition['message']}" == told


async def test_the_store_of_the_newest_committed_checkpoint_is_expected_by_the_next(case):
    """CK7."""
    original = case.world._store
    case.world._store = lambda args: {**original(args), "storeId": "f00d"}
    await take(case, 1)
    assert case.status(ObjectKey(KEY.namespace, "t-c00001"))["storeId"] == "f00d"
    await case.ask()
    await case.look()
    told = case.operator.members.reply(case.world.uid, W0, term=0)["directives"]
    assert [directive["args"]["storeId"] for directive in told] == ["f00d"]


# -- hostile answers


@pytest.mark.parametrize(
    "value",
    [
        None,
        "commit",
        ["commit"],
        {"outcome": ["commit"]},
        {"outcome": {"commit": 1}},
        {"outcome": "maybe"},
        {"outcome": None},
    ],
    ids=str,
)
async def test_an_answer_that_is_no_decision_decides_nothing(case, value):
    """CK5, PS4: what an agent says may be anything."""
    await case.ask()
    await case.look()
    case.answer(W0, f"store:commit:{case.status()['id']}", ok=True, value=value)
    await case.look()
    assert case.status()["state"] == "Staging"


@pytest.mark.parametrize(
    "extra",
    [
        {"copies": {"0": 3}},
        {"copies": {"0": None}},
        {"copies": "many"},
        {"copies": {}},
        {"bytes": "lots"},
        {"bytes": -5},
        {"bytes": [1]},
        {"digest": {"x": 1}},
    ],
    ids=str,
)
async def test_figures_that_make_no_sense_do_not_stop_a_commit(case, extra):
    """CK5, PS4."""
    await case.ask()
    await case.look()
    value = {"outcome": "commit", **extra}
    case.answer(W0, f"store:commit:{case.status()['id']}", ok=True, value=value)
    await case.look()
    status = case.status()
    assert status["state"] == "Committed"
    assert status["bytes"] >= 0
    assert status["copies"] >= 0


async def test_a_tensor_that_changed_unnoticed_is_told_on_the_trainer(case):
    """FZ2: which one, and what follows."""
    await case.ask()
    await case.look()
    value = {"outcome": "commit", "differing": ["head.weight"]}
    case.answer(W0, f"store:commit:{case.status()['id']}", ok=True, value=value)
    await case.look()
    told = [text for reason, text in case.operator.events.seen if reason == "TensorChangedUnnoticed"]
    assert len(told) == 1
    assert "mine found that head.weight had changed unnoticed" in told[0]
    assert "it is compared by content" in told[0]


@pytest.mark.parametrize("names", [None, [], "head.weight"], ids=str)
async def test_an_audit_that_found_nothing_is_no_event(case, names):
    """FZ2, CK5."""
    await case.ask()
    await case.look()
    value = {"outcome": "commit", "differing": names}
    case.answer(W0, f"store:commit:{case.status()['id']}", ok=True, value=value)
    await case.look()
    assert case.status()["state"] == "Committed"
    assert "TensorChangedUnnoticed" not in [reason for reason, _ in case.operator.events.seen]


# -- what was looked at


async def test_the_status_says_which_spec_was_looked_at(case):
    """C7: with the write that is made anyway, and again when only the spec changed."""
    await case.ask()
    await case.run(8)
    assert len(case.writes()) == 2
    assert case.status()["observedGeneration"] == 1
    found = case.world.api.log.get(CHECKPOINTS, MINE)
    changed = {**found, "spec": {**found["spec"], "hold": True}}
    changed["metadata"]["generation"] = 2
    case.world.api.log.put(CHECKPOINTS, changed)
    await case.run(2)
    assert case.status()["observedGeneration"] == 2
    assert len(case.writes()) == 3


# -- whom it leaves alone


async def test_a_checkpoint_of_another_trainer_of_that_name_is_not_touched(case):
    """TR22."""
    await case.ask()
    found = case.world.api.log.get(CHECKPOINTS, MINE)
    found["spec"]["trainerRef"]["uid"] = "uid-of-the-deleted-one"
    case.world.api.log.put(CHECKPOINTS, found)
    assert await case.look() is None
    assert case.status() == {}


async def test_a_checkpoint_that_is_gone_is_nothing_to_do(case):
    assert await case.look() is None


async def test_an_object_that_cannot_be_read_stops_nothing(case):
    """TR28."""
    await case.ask()
    found = case.world.api.log.get(CHECKPOINTS, MINE)
    case.world.api.log.put(CHECKPOINTS, {**found, "spec": {"trainerRef": 7}})
    assert await case.look() is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * 2**30, "5.0 GiB"),
        (3 * 2**40, "3.0 TiB"),
    ],
)
def test_sizes_are_written_for_people(count, text):
    assert human_size(count) == text


@pytest.mark.parametrize(
    ("flight", "change", "pauses"),
    [("mine", "mine", True), ("mine", None, False), ("mine", "other", False), (None, None, True)],
)
async def test_members_wait_only_for_the_change_that_asked_for_it(flight, change, pauses):
    """ME7, RC8: in an epoch after that of the change nobody would let them go on; an older Trainer knows nothing yet."""
    case = await Case().start()
    await case.ask(pause=True)
    found = case.world.api.log.get(TRAINERS, KEY)
    if flight is not None:
        found["status"]["checkpointInFlight"] = {"name": flight, "since": "2026-01-01T00:00:00Z"}
    if change is not None:
        pending = {"reason": "Scale", "since": "2026-01-01T00:00:00Z", "checkpoint": change}
        found["status"]["pendingChange"] = pending
    case.world.api.log.put(TRAINERS, found)
    await case.look()
    directives = case.operator.members.reply(case.world.uid, W0, term=0)["directives"]
    (order,) = (directive for directive in directives if directive["kind"] == "Checkpoint")
    assert order["args"]["pause"] is pauses
