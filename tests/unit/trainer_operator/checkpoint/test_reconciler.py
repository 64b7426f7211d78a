"""The Checkpoint reconciler: one object from Pending to its end, and what agents are told on the way."""

from datetime import timedelta

import pytest

from runtime.client.errors import Conflict
from runtime.clock import format_time
from runtime.objects import ObjectKey
from simulation.world import KEY, Operator, World, one_pass, request
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.api.status import Phase
from trainer_operator.checkpoint.commit import human_size
from trainer_operator.checkpoint.state import SWEEP_GRACE
from trainer_operator.checkpoint.view import COMMIT_TRIES
from trainer_operator.topology.beat import Ack, DirectiveResult
from trainer_operator.topology.members import MemberId

W0, W1 = MemberId("worker", 0), MemberId("worker", 1)
MINE = ObjectKey(KEY.namespace, "mine")


class Case:
    """A running Trainer that takes no checkpoints by itself, and one that a user asks for."""

    def __init__(self, **topology):
        self.world = World(epochs=200, **topology)
        self.world.edit(checkpoint={"bucket": "claim", "intervalMinutes": 500, "maxRetention": 2})
        self.operator = Operator(self.world)

    async def run(self, seconds=1):
        for _ in range(seconds):
            await one_pass(self.world, [self.operator])
            self.world.tick(self.operator)

    async def start(self):
        await self.run(8)
        assert self.world.status.phase is Phase.RUNNING
        return self

    async def ask(self, key=MINE, **spec):
        """Create a Checkpoint as a user does."""
        trainer = self.world.api.log.get(TRAINERS, KEY)
        owner = {"kind": "Trainer", "name": KEY.name, "uid": self.world.uid, "controller": True}
        body = {
            "metadata": {"name": key.name, "ownerReferences": [owner]},
            "spec": {"trainerRef": {"name": KEY.name, "uid": trainer["metadata"]["uid"]}, **spec},
        }
        await self.world.api.create(CHECKPOINTS, body, namespace=key.namespace)
        self.world.api.writes.clear()

    async def look(self, key=MINE):
        return await self.operator.checkpoint.reconcile(request(key))

    def status(self, key=MINE):
        return self.world.api.log.get(CHECKPOINTS, key).get("status") or {}

    def told(self, member=W0):
        directives = self.operator.members.reply(self.world.uid, member, term=0)["directives"]
        return [(directive["kind"], directive["args"].get("op")) for directive in directives]

    def writes(self):
        return [name for _, kind, name in self.world.api.writes if kind == "Checkpoint"]

    def agent(self, member):
        return next(agent for agent in self.world.agents.values() if agent.member == member)

    def answer(self, member, directive, **result):
        """Have an agent report a result of its own making; the operator hears it with the next beat."""
        agent = self.agent(member)
        agent.results[directive] = DirectiveResult(directive, **result)
        self.operator.members.accept(agent.beat(self.world.uid))


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


# -- retention


async def take(case, count):
    keys = [ObjectKey(KEY.namespace, f"t-c{number:05d}") for number in range(1, count + 1)]
    for key in keys:
        await case.ask(key)
        for _ in range(12):
            await case.run()
            if case.status(key).get("state") == "Committed":
                break
        assert case.status(key)["state"] == "Committed"
    await case.run(6)
    return keys


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
