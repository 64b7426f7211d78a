"""The prober at work: orders for scrubs, tries at a store that is at fault, and what is kept in the status."""

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from runtime.client.errors import Conflict
from runtime.clock import format_time
from runtime.objects import ObjectKey
from runtime.testing.clock import SimClock
from simulation.apiserver import Api, Cached
from simulation.world import KEY, Events, request
from trainer_operator.api.checkpoint import VERIFY_ANNOTATION
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.checkpoint import scrubs
from trainer_operator.checkpoint.prober import AT_REST_PERIOD, FIRST, PERIOD
from trainer_operator.checkpoint.scrubs import Prober
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import Beat, DirectiveResult, janitor_of
from trainer_operator.topology.members import JANITOR, MemberId, Members

SOUND = {"bytes": 100, "damaged": 0, "missing": 0, "repaired": 0, "completed": 0, "lacking": 0, "lost": []}
CORRUPT = {**SOUND, "missing": 1, "lost": [0], "bad": ["c0/ab is missing"]}
BROKEN = {"ok": False, "error": "StoreChanged: an empty store answers there"}
W0, W1 = MemberId("worker", 0), MemberId("worker", 1)


class Case:
    """A Trainer with one agent, whose checkpoints were committed some hours ago."""

    def __init__(self, **hours):
        self.clock = SimClock()
        self.api = Api(self.clock)
        metadata = {"name": KEY.name, "namespace": KEY.namespace}
        self.uid = self.api.log.put(TRAINERS, {"metadata": metadata, "spec": {}})["metadata"]["uid"]
        for name, age in (hours or {"c1": 1}).items():
            self.add(name, hours=age)
        self.lead()
        self.seq = 0
        self.results = {}
        self.beat()

    def lead(self):
        """Have another process lead; what the last one knew is lost."""
        self.members, self.events, self.registry = Members(self.clock), Events(), CollectorRegistry()
        self.called = []
        self.prober = Prober(
            client=self.api,
            checkpoints=Cached(self.api, CHECKPOINTS),
            trainers=Cached(self.api, TRAINERS),
            members=self.members,
            events=self.events,
            clock=self.clock,
            call_janitor=self.called.append,
            metrics=TrainerMetrics(self.registry),
        )

    def add(self, name, *, hours=1, state="Committed"):
        when = format_time(self.clock.utcnow() - timedelta(hours=hours))
        owner = {"kind": "Trainer", "name": KEY.name, "uid": self.uid, "controller": True}
        status = {"state": state, "id": f"{len(name):012d}-e1-00ab", "storeId": "s", "bytes": 100}
        status |= {"committedAt": when, "verified": "Listed", "lastVerified": when}
        metadata = {"name": name, "namespace": KEY.namespace, "ownerReferences": [owner]}
        spec = {"trainerRef": {"name": KEY.name}}
        self.api.log.put(CHECKPOINTS, {"metadata": metadata, "spec": spec, "status": status})

    def object(self, name="c1"):
        return self.api.log.get(CHECKPOINTS, ObjectKey(KEY.namespace, name))

    def status(self, name="c1"):
        return self.object(name)["status"]

    def change(self, name="c1", *, annotations=None, **status):
        found = self.object(name)
        metadata = {**found["metadata"], "annotations": annotations or {}}
        self.api.log.put(
            CHECKPOINTS, {**found, "metadata": metadata, "status": {**found["status"], **status}}
        )

    def beat(self, member=W0):
        self.seq += 1
        words = {"v": 1, "trainer": str(KEY), "tuid": self.uid, "pod": f"pod-{member}", "boot": "b"}
        self.members.accept(
            Beat(
                **words,
                role=member.role,
                idx=member.index,
                attempt=0,
                seq=self.seq,
                results=list(self.results.values()),
            )
        )

    async def look(self, member=W0):
        """Make a pass; return the order that the agent gets, and when the next pass is due."""
        self.beat(member)
        result = await self.prober.reconcile(request())
        directives = self.members.reply(self.uid, member, term=0)["directives"]
        assert len(directives) <= 1
        return (directives or [None])[0], result.requeue_after

    async def order(self):
        return (await self.look())[0]

    def answer(self, order, **result):
        self.results[order["id"]] = DirectiveResult(order["id"], **result)
        self.beat()

    def add_trainer(self, name, *, hours):
        """Add another Trainer with one checkpoint in the same store; return its key."""
        mine, key = self.uid, ObjectKey(KEY.namespace, name)
        metadata = {"name": name, "namespace": KEY.namespace}
        self.uid = self.api.log.put(TRAINERS, {"metadata": metadata, "spec": {}})["metadata"]["uid"]
        self.add(f"{name}-c1", hours=hours)
        self.uid = mine
        return key

    def rest(self, *, phase="Succeeded", spec=None, deleted=False):
        """Have all Trainers rest, for so long that nobody waits for their members."""
        for trainer in self.api.log.objects(TRAINERS):
            metadata = dict(trainer["metadata"])
            if deleted:
                metadata["deletionTimestamp"] = format_time(self.clock.utcnow())
            found = {"checkpoint": {"bucket": "b"}} if spec is None else spec
            self.api.log.put(TRAINERS, {"metadata": metadata, "spec": found, "status": {"phase": phase}})
        self.clock.advance(60)

    async def pass_at_rest(self, key=KEY):
        """Make a pass without a member; return when the next one is due."""
        return (await self.prober.reconcile(request(key))).requeue_after

    def janitors_order(self, key=KEY):
        uid = self.api.log.get(TRAINERS, key)["metadata"]["uid"]
        return next(iter(self.members.declared(janitor_of(uid), JANITOR)), None)

    def janitor_answers(self, order, key=KEY, **result):
        self.seq += 1
        uid = self.api.log.get(TRAINERS, key)["metadata"]["uid"]
        words = {"v": 1, "trainer": str(key), "tuid": uid, "pod": "janitor", "boot": "b", "role": "janitor"}
        results = [DirectiveResult(order.id, **result)]
        self.members.accept(Beat(**words, idx=0, attempt=0, seq=self.seq, results=results))

    def value(self, name, **labels):
        return self.registry.get_sample_value(name, labels)

    def lag(self):
        return self.value("trainer_checkpoint_scrub_lag_seconds")


@pytest.fixture
def case():
    return Case()


async def test_a_new_checkpoint_is_read_once_and_then_rests_for_half_a_day(case):
    """PB1, IV13: one order, one write, and none in between."""
    order = await case.order()
    assert order["args"] == {"ckpt": "000000000002-e1-00ab", "storeId": "s", "bytesPerSecond": 50_000_000}
    assert await case.order() == order
    case.answer(order, value=SOUND)
    assert await case.look() == (None, 0)
    assert (case.status()["health"], case.status()["verified"]) == ("Healthy", "Full")
    nothing, wait = await case.look()
    assert nothing is None
    assert wait == pytest.approx(PERIOD.total_seconds(), abs=1)
    assert len(case.api.writes) == 1
    assert case.events.seen == []
    case.clock.advance(PERIOD.total_seconds() + 1)
    assert (await case.order())["id"] != order["id"]


async def test_one_at_a_time_the_oldest_first():
    """PB1."""
    case = Case(c1=1, c22=3, c333=2)
    seen = []
    while (order := await case.order()) is not None:
        seen.append(order["args"]["ckpt"])
        case.answer(order, value=SOUND)
        await case.look()
    assert seen == [case.status(name)["id"] for name in ("c22", "c333", "c1")]


async def test_none_is_ordered_while_a_save_is_in_flight(case):
    """PB1."""
    case.add("c2", state="Staging")
    assert await case.look() == (None, scrubs.RECHECK)
    case.change("c2", state="GarbageCollected")
    assert await case.order() is not None


async def test_one_that_is_about_to_be_deleted_is_left_alone(case):
    """GC4."""
    case.change("c1", markedAt=format_time(case.clock.utcnow()))
    case.beat()
    assert await case.prober.reconcile(request()) is None


async def test_a_store_at_fault_is_written_once_and_tried_again_with_pauses(case):
    """PB4: a store that is away costs no writes."""
    order = await case.order()
    case.answer(order, **BROKEN)
    assert await case.look() == (None, scrubs.FIRST_PAUSE)
    assert (case.status()["health"], case.status()["verified"]) == ("Unknown", "Listed")
    assert case.status()["conditions"][0]["reason"] == "StoreChanged"
    waits = []
    for _ in range(8):
        nothing, wait = await case.look()
        assert nothing is None
        waits.append(wait)
        case.clock.advance(wait)
        again = await case.order()
        assert again["id"].startswith(f"{order['id']}#")
        case.answer(again, **BROKEN)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert len(case.api.writes) == 1
    assert [reason for reason, _ in case.events.seen] == ["CheckpointUnverified"]
    case.clock.advance(3600)
    await case.look()
    case.clock.advance(3600)
    case.answer(await case.order(), value=SOUND)
    await case.look()
    assert (case.status()["health"], case.status()["verified"]) == ("Healthy", "Full")


async def test_an_agent_that_knows_no_scrubs_costs_no_writes(case):
    """PB1: its image is older than the operator."""
    case.answer(await case.order(), ok=False, error="this agent does not know 'Scrub'")
    assert await case.look() == (None, scrubs.FIRST_PAUSE)
    assert case.api.writes == []


async def test_a_new_leader_gives_the_same_order_and_takes_its_answer(case):
    """RC8: what was begun is not begun again."""
    order = await case.order()
    case.lead()
    assert await case.order() == order
    case.lead()
    case.answer(order, value=SOUND)
    await case.look()
    assert case.status()["verified"] == "Full"


async def test_another_agent_goes_on_when_the_first_one_is_silent(case):
    """PB1."""
    order = await case.order()
    case.clock.advance(60)
    assert (await case.look(W1))[0] == order


async def test_what_was_found_survives_a_conflict(case):
    """CS6, R2: the answer is still there in the next pass."""
    case.answer(await case.order(), value=SOUND)
    case.api.planned.append(Conflict("changed", status=409, reason="Conflict"))
    with pytest.raises(Conflict):
        await case.look()
    await case.look()
    assert case.status()["verified"] == "Full"


async def test_without_an_agent_nothing_is_ordered_and_nothing_is_late(case):
    """PB1, PB6."""
    assert await case.order() is not None
    assert case.lag() == pytest.approx(timedelta(hours=1).total_seconds() - FIRST.total_seconds(), abs=1)
    case.clock.advance(60)
    assert (await case.prober.reconcile(request())).requeue_after == scrubs.WITHOUT_AGENT
    assert case.lag() == 0


async def test_what_a_user_asks_for_is_read_at_once(case):
    """PB1: although it was read a minute ago."""
    now = case.clock.utcnow()
    case.change(verified="Full", lastVerified=format_time(now - timedelta(minutes=1)))
    assert await case.order() is None
    case.change(annotations={VERIFY_ANNOTATION: format_time(now)})
    assert await case.order() is not None


async def test_at_rest_a_janitor_reads_at_once_what_a_user_asks_for(case):
    """PB1: a pod is started for it, and sent away when it has answered."""
    case.rest()
    assert await case.pass_at_rest() > timedelta(hours=18).total_seconds()
    assert case.called == []
    case.change(annotations={VERIFY_ANNOTATION: format_time(case.clock.utcnow())})
    await case.pass_at_rest()
    order = case.janitors_order()
    assert (order.kind, case.called) == ("Scrub", [KEY])
    case.janitor_answers(order, value=SOUND)
    await case.pass_at_rest()
    assert case.status()["verified"] == "Full"
    assert case.janitors_order() is None
    assert case.called == [KEY, KEY]


async def test_at_rest_each_checkpoint_is_read_within_a_day_and_nothing_is_written_in_between():
    """PB1: one janitor reads all that is due, then it is quiet until the next day."""
    case = Case(c1=21, c22=22)
    case.rest()
    seen = []
    while await case.pass_at_rest() < timedelta(hours=1).total_seconds():
        order = case.janitors_order()
        if order is not None:
            seen.append(order.args["ckpt"])
            case.janitor_answers(order, value=SOUND)
    assert seen == [case.status(name)["id"] for name in ("c22", "c1")]
    assert len(case.api.writes) == 2
    wait = await case.pass_at_rest()
    assert wait == pytest.approx(AT_REST_PERIOD.total_seconds(), abs=60)
    assert wait < timedelta(hours=24).total_seconds()
    assert len(case.api.writes) == 2
    case.clock.advance(wait)
    await case.pass_at_rest()
    assert case.janitors_order() is not None


async def test_at_rest_all_is_read_in_the_time_that_a_janitor_has():
    """PB1: a slower one would begin anew for ever."""
    case = Case(c1=21)
    case.change(bytes=120 * 10**9)
    case.rest()
    await case.pass_at_rest()
    assert case.janitors_order().args["bytesPerSecond"] * 600 >= 120 * 10**9


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
async def test_one_janitor_at_a_time_reads_a_store_unless_a_user_waits(asked):
    """PB1: of many Trainers at rest, none waits for ever."""
    case = Case(c1=21)
    other = case.add_trainer("u", hours=22)
    case.rest()
    await case.pass_at_rest(other)
    if asked:
        case.change(annotations={VERIFY_ANNOTATION: format_time(case.clock.utcnow())})
    wait = await case.pass_at_rest()
    assert (case.janitors_order() is not None) == asked
    if asked:
        return
    assert wait == scrubs.WAITS_ITS_TURN
    assert case.lag() > 0
    case.janitor_answers(case.janitors_order(other), other, value=SOUND)
    await case.pass_at_rest(other)
    await case.pass_at_rest()
    assert case.janitors_order() is not None


UNREAD_AT_REST = {"checkpoint": {"bucket": "b", "verifyAtRest": False}}


async def test_a_trainer_may_have_nothing_read_at_rest_but_what_somebody_asks_for():
    """PB1: no pod, no write and no pass by the clock; nor is it late."""
    case = Case(c1=30, c22=30)
    case.rest(spec=UNREAD_AT_REST)
    assert await case.prober.reconcile(request()) is None
    assert (case.janitors_order(), case.called, case.api.writes, case.lag()) == (None, [], [], 0)
    case.change("c22", annotations={VERIFY_ANNOTATION: format_time(case.clock.utcnow())})
    await case.pass_at_rest()
    assert case.janitors_order().args["ckpt"] == case.status("c22")["id"]
    case.janitor_answers(case.janitors_order(), value=CORRUPT)
    await case.pass_at_rest()
    assert case.status("c22")["health"] == "Corrupt"
    assert await case.prober.reconcile(request()) is None
    assert case.janitors_order() is None


async def test_a_read_at_rest_that_is_wanted_no_more_is_called_off():
    """PB1: and taken up again once it is wanted."""
    case = Case(c1=30)
    for spec in ({"checkpoint": {"bucket": "b"}}, UNREAD_AT_REST) * 2:
        case.rest(spec=spec)
        await case.prober.reconcile(request())
        assert (case.janitors_order() is None) == (spec is UNREAD_AT_REST)
    assert case.called == [KEY] * 4


async def test_while_members_run_all_is_read_whatever_is_said_of_rest():
    """PB1."""
    case = Case(c1=1)
    case.rest(spec=UNREAD_AT_REST, phase="Running")
    assert await case.order() is not None


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"checkpoint": {"bucket": "b"}, "managedBy": "example.com/other"}},
        {"spec": {}},
        {"deleted": True},
        {"phase": "Running"},
    ],
    ids=["of another controller", "without a store", "being deleted", "about to come back"],
)
async def test_no_janitor_is_started_unasked_where_that_is_not_ours_to_do(change):
    """PB1, TR36."""
    case = Case(c1=30)
    case.rest(**change)
    await case.pass_at_rest()
    assert case.janitors_order() is None


@pytest.mark.parametrize(
    ("answer", "health", "reason", "event"),
    [
        ({"value": CORRUPT}, "Corrupt", "ObjectMissing", "CheckpointCorrupt"),
        (
            {"ok": False, "error": "NotRestorable: no DECISION"},
            "Corrupt",
            "StoreDisagrees",
            "CheckpointCorrupt",
        ),
        (BROKEN, "Unknown", "StoreChanged", "CheckpointUnverified"),
        (
            {"ok": False, "error": "NoRights: s3://b refuses a GET"},
            "Unknown",
            "NoRights",
            "CheckpointUnverified",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
async def test_what_a_janitor_finds_missing_has_a_cause_and_a_remedy(answer, health, reason, event):
    """PB4: Committed, but missing; nobody asked."""
    case = Case(c1=21)
    case.rest()
    await case.pass_at_rest()
    case.janitor_answers(case.janitors_order(), **answer)
    await case.pass_at_rest()
    condition = case.status()["conditions"][0]
    assert (case.status()["health"], condition["reason"]) == (health, reason)
    assert dict(case.events.seen)[event] == condition["message"]


@pytest.mark.parametrize("text", ["now", "", "2026-13-45T99:99:99Z", "2026-01-01T00:00:00", "x" * 100])
async def test_an_annotation_that_is_no_time_counts_as_absent(case, text):
    """PB1: nor does it break the pass."""
    case.change(
        annotations={VERIFY_ANNOTATION: text},
        verified="Full",
        lastVerified=format_time(case.clock.utcnow()),
    )
    assert await case.order() is None


async def test_a_corrupt_one_stays_committed_and_is_told_on_the_trainer_too(case):
    """CS6, CS7, PB4, PB6: "Committed, but the file is missing"."""
    case.answer(await case.order(), value=CORRUPT)
    await case.look()
    status = case.status()
    assert (status["state"], status["health"], status["verified"]) == ("Committed", "Corrupt", "Full")
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Verified",
        "False",
        "ObjectMissing",
    )
    assert "c0/ab is missing" in condition["message"]
    assert [reason for reason, _ in case.events.seen] == ["CheckpointCorrupt"] * 2
    namespace = KEY.namespace
    assert case.value("trainer_checkpoint_scrubs_total", namespace=namespace, health="corrupt") == 1
    assert case.value("trainer_checkpoint_scrubbed_bytes_total", namespace=namespace) == 100
    assert case.value("trainer_checkpoint_repaired_objects_total", namespace=namespace) == 0


async def test_siblings_of_a_corrupt_one_are_read_at_once():
    """PB2: they may refer to the same data."""
    case = Case(c1=3, c22=1)
    read = format_time(case.clock.utcnow() - timedelta(minutes=30))
    case.change("c22", verified="Full", lastVerified=read)
    case.answer(await case.order(), value=CORRUPT)
    await case.look()
    assert (await case.order())["args"]["ckpt"] == case.status("c22")["id"]


async def test_a_trainer_that_is_gone_leaves_nothing_behind(case):
    """PB6."""
    await case.look()
    assert case.lag() > 0
    case.api.log.delete(TRAINERS, KEY)
    assert await case.prober.reconcile(request()) is None
    assert case.lag() == 0
