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
from trainer_operator.checkpoint.prober import FIRST, PERIOD
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


async def test_at_rest_a_janitor_reads_what_a_user_asks_for_and_nothing_else(case):
    """PB1: a pod is started for it, and sent away when it has answered."""
    trainer = case.api.log.get(TRAINERS, KEY)
    case.api.log.put(TRAINERS, {**trainer, "status": {"phase": "Suspended"}})
    case.clock.advance(60)
    janitor = janitor_of(case.uid)
    assert (await case.prober.reconcile(request())).requeue_after == scrubs.WITHOUT_AGENT
    assert case.called == []
    case.change(annotations={VERIFY_ANNOTATION: format_time(case.clock.utcnow())})
    await case.prober.reconcile(request())
    (order,) = case.members.declared(janitor, JANITOR)
    assert (order.kind, case.called) == ("Scrub", [KEY])
    words = {"v": 1, "trainer": str(KEY), "tuid": case.uid, "pod": "janitor", "boot": "b"}
    result = DirectiveResult(order.id, value=SOUND)
    case.members.accept(Beat(**words, role="janitor", idx=0, attempt=0, seq=1, results=[result]))
    await case.prober.reconcile(request())
    assert case.status()["verified"] == "Full"
    assert case.members.declared(janitor, JANITOR) == []
    assert case.called == [KEY, KEY]


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
