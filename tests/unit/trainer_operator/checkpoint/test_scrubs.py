"""Orders for scrubs, tries at a store that is at fault, and what is kept in the status."""

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from runtime.clock import format_time
from runtime.objects import ObjectKey
from runtime.testing.clock import SimClock
from trainer_operator.api.checkpoint import VERIFY_ANNOTATION, Checkpoint
from trainer_operator.checkpoint import scrubs
from trainer_operator.checkpoint.prober import FIRST, PERIOD
from trainer_operator.checkpoint.scrubs import Scrubbed, Scrubs
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import DirectiveResult

SOUND = {"bytes": 100, "damaged": 0, "missing": 0, "repaired": 0, "completed": 0, "lacking": 0, "lost": []}
BROKEN = {"ok": False, "error": "StoreChanged: an empty store answers there"}


class Case:
    """The scrubs of one Trainer whose checkpoints were committed an hour ago."""

    def __init__(self, *names):
        self.clock = SimClock()
        self.registry = CollectorRegistry()
        self.scrubs = Scrubs(self.clock, TrainerMetrics(self.registry))
        self.objects = {name: self.make(name) for name in names or ("c1",)}
        self.answers = {}

    def make(self, name, *, state="Committed", hours=1, **status):
        when = format_time(self.clock.utcnow() - timedelta(hours=hours))
        ckpt = f"{len(name):012d}-e1-00ab"
        status = {"state": state, "id": ckpt, "committedAt": when, "storeId": "s", "bytes": 100, **status}
        status |= {"verified": "Listed", "lastVerified": when} if "verified" not in status else {}
        metadata = {"name": name, "namespace": "ns", "annotations": {}}
        return {"metadata": metadata, "spec": {"trainerRef": {"name": "t"}}, "status": status}

    def plan(self, name="c1", *, has_agent=True, at_rest=False):
        checkpoint = Checkpoint.read(self.objects[name])
        siblings = list(self.objects.values())
        key = ObjectKey("ns", name)
        return self.scrubs.plan(Scrubbed(key, checkpoint, siblings, self.answers, has_agent, at_rest))

    def answer(self, order, **result):
        self.answers[order.id] = DirectiveResult(order.id, **result)

    def store(self, name, finding):
        """Write what was found, as the reconciler does."""
        checkpoint = Checkpoint.read(self.objects[name])
        status = checkpoint.status.model_copy(deep=True)
        scrubs.apply(status, finding, generation=1, now=self.clock.utcnow())
        changed = status.dump() != checkpoint.status.dump()
        self.objects[name]["status"] = status.dump()
        return changed

    def lag(self):
        return self.registry.get_sample_value("trainer_checkpoint_scrub_lag_seconds")


@pytest.fixture
def case():
    return Case()


def test_a_new_checkpoint_is_read_once_and_then_rests_for_half_a_day(case):
    """PB1, IV13: one order, one write."""
    order = case.plan().order
    assert (order.kind, order.args["storeId"], order.args["bytesPerSecond"]) == ("Scrub", "s", 50_000_000)
    assert case.plan().order == order
    case.answer(order, value=SOUND)
    found = case.plan()
    assert found.order is None
    assert case.store("c1", found.finding)
    status = case.objects["c1"]["status"]
    assert (status["health"], status["verified"]) == ("Healthy", "Full")
    assert status["conditions"][0]["type"] == "Verified"
    rest = case.plan()
    assert (rest.order, rest.finding) == (None, None)
    assert rest.wait == pytest.approx(PERIOD.total_seconds(), abs=1)
    case.clock.advance(PERIOD.total_seconds() + 1)
    assert case.plan().order.id != order.id


def test_one_at_a_time_per_trainer():
    """PB1: the others wait for their turn."""
    case = Case("c1", "c22", "c333")
    orders = {name: case.plan(name).order for name in case.objects}
    assert [name for name, order in orders.items() if order is not None] == ["c1"]
    case.answer(orders["c1"], value=SOUND)
    case.store("c1", case.plan().finding)
    assert case.plan("c22").order is not None
    assert case.plan("c333").order is None


def test_none_is_ordered_while_a_save_is_in_flight(case):
    """PB1."""
    case.objects["c2"] = case.make("c2", state="Staging")
    assert case.plan().order is None
    assert case.plan().wait == scrubs.RECHECK
    case.objects["c2"]["status"]["state"] = "GarbageCollected"
    assert case.plan().order is not None


def test_a_store_at_fault_is_written_once_and_tried_again_with_pauses(case):
    """PB4: an idle Trainer whose store is away costs no writes."""
    order = case.plan().order
    case.answer(order, **BROKEN)
    plan = case.plan()
    assert (plan.order, plan.wait) == (None, scrubs.FIRST_PAUSE)
    assert case.store("c1", plan.finding)
    status = case.objects["c1"]["status"]
    assert (status["health"], status["verified"]) == ("Unknown", "Listed")
    assert status["conditions"][0]["reason"] == "StoreChanged"
    waits = []
    for _ in range(8):
        plan = case.plan()
        waits.append(plan.wait)
        case.clock.advance(plan.wait)
        again = case.plan().order
        assert again.id.startswith(f"{order.id}#")
        case.answer(again, **BROKEN)
        assert not case.store("c1", case.plan().finding)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    case.clock.advance(case.plan().wait)
    case.answer(case.plan().order, value=SOUND)
    assert case.store("c1", case.plan().finding)
    assert case.objects["c1"]["status"]["health"] == "Healthy"


def test_an_agent_that_knows_no_scrubs_costs_no_writes(case):
    """PB1: its image is older than the operator."""
    case.answer(case.plan().order, ok=False, error="this agent does not know 'Scrub'")
    plan = case.plan()
    assert (plan.finding, plan.order, plan.wait) == (None, None, scrubs.FIRST_PAUSE)


def test_a_new_leader_gives_the_same_order(case):
    """RC8: what was begun is not begun again."""
    order = case.plan().order
    case.scrubs = Scrubs(case.clock, TrainerMetrics(CollectorRegistry()))
    assert case.plan().order == order


def test_without_an_agent_nothing_is_ordered_and_nothing_is_late(case):
    """PB1, PB6."""
    assert case.plan().order is not None
    assert case.lag() > 0
    assert case.plan(has_agent=False).order is None
    assert case.lag() == 0


def test_at_rest_only_what_a_user_asks_for_is_read(case):
    """PB1: a pod is started for it."""
    assert case.plan(at_rest=True).order is None
    case.objects["c1"]["metadata"]["annotations"][VERIFY_ANNOTATION] = format_time(case.clock.utcnow())
    assert case.plan(at_rest=True).order is not None


@pytest.mark.parametrize("text", ["now", "", "2026-13-45T99:99:99Z", "2026-01-01T00:00:00", "x" * 100])
def test_an_annotation_that_is_no_time_counts_as_absent(case, text):
    """PB1: nor does it break the pass."""
    case.objects["c1"]["metadata"]["annotations"][VERIFY_ANNOTATION] = text
    assert case.plan(at_rest=True).order is None
    assert case.plan().order is not None


def test_the_lag_is_that_of_the_one_that_waits_longest():
    """PB6."""
    case = Case("c1", "c22")
    case.objects["c22"] = case.make("c22", hours=3)
    for name in case.objects:
        case.plan(name)
    assert case.lag() == pytest.approx(timedelta(hours=3).total_seconds() - FIRST.total_seconds(), abs=1)
    case.scrubs.forget(ObjectKey("ns", "c22"))
    assert case.lag() == pytest.approx(timedelta(hours=1).total_seconds() - FIRST.total_seconds(), abs=1)


def test_a_corrupt_one_stays_committed_and_says_why(case):
    """CS6, CS7."""
    case.answer(case.plan().order, value={**SOUND, "missing": 1, "lost": [0], "bad": ["c0/ab is missing"]})
    case.store("c1", case.plan().finding)
    status = case.objects["c1"]["status"]
    assert (status["state"], status["health"], status["verified"]) == ("Committed", "Corrupt", "Full")
    assert status["conditions"][0]["status"] == "False"
    assert "c0/ab is missing" in status["conditions"][0]["message"]
