"""Checkpoint objects rebuilt from the store alone."""

import pytest

from runtime.objects import ObjectKey, key_of
from simulation.world import KEY, Operator, World, one_pass
from simulation.world import run as run_to_end
from trainer_operator.api.names import IMPORT_ANNOTATION, IMPORT_FAILED
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.topology.beat import janitor_of
from trainer_operator.topology.members import JANITOR

SHOWN = ("id", "step", "epoch", "state", "bytes", "observedGeneration")


def record(number, parent, step):
    return {"number": number, "parent": parent, "step": step}


class Case:
    """A Trainer that has ended, and whose Checkpoint objects are gone."""

    def __init__(self):
        self.world = World(epochs=6)
        self.operators = []
        self.lost = {}

    async def start(self):
        self.operators = await run_to_end(self.world)
        self.lost = self.committed()
        for checkpoint in self.world.checkpoints():
            self.world.api.log.delete(CHECKPOINTS, key_of(checkpoint))
        return self

    def committed(self):
        found = [c["status"] for c in self.world.checkpoints() if c["status"].get("state") == "Committed"]
        return {status["id"]: {name: status.get(name) for name in SHOWN} for status in found}

    def ask(self):
        found = self.world.api.log.get(TRAINERS, KEY)
        found["metadata"]["annotations"] = {IMPORT_ANNOTATION: "2026-01-01T00:00:00Z"}
        self.world.api.log.put(TRAINERS, found)

    @property
    def asked(self):
        return self.world.api.log.get(TRAINERS, KEY)["metadata"]["annotations"].get(IMPORT_ANNOTATION, "")

    async def run(self, seconds):
        for _ in range(seconds):
            await one_pass(self.world, self.operators)
            self.world.tick(self.operators[-1])

    async def until_done(self):
        for _ in range(200):
            await self.run(1)
            if not self.asked or self.asked.startswith(IMPORT_FAILED):
                return
        raise AssertionError("the import does not end")

    def know(self, timelines):
        """Have the Trainer's status hold these timelines."""
        found = self.world.api.log.get(TRAINERS, KEY)
        found["status"]["timelines"] = timelines
        self.world.api.log.put(TRAINERS, found)

    def said(self):
        return dict(self.operators[-1].events.seen)


@pytest.fixture
async def case():
    return await Case().start()


async def test_the_objects_are_as_they_were_and_a_second_import_changes_nothing(case):
    """RS6, IV10: what was collected does not come back."""
    assert len(case.lost) == 2
    for said in ("2 Checkpoint objects were rebuilt", "0 Checkpoint objects were rebuilt"):
        case.ask()
        await case.until_done()
        assert case.said()["CheckpointsImported"].startswith(said)
        assert case.committed() == case.lost
    await case.run(10)
    assert not any("janitor" in pod["metadata"]["name"] for pod in case.world.pods())
    assert case.operators[-1].members.declared(janitor_of(case.world.uid), JANITOR) == []


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("number", range(1, 8))
async def test_an_operator_that_dies_at_any_write_is_followed_by_one_that_finishes(
    case, number, after_effect
):
    """RS6, RC8: also between an object and its status."""
    case.world.api.writes.clear()
    case.world.api.kill_at, case.world.api.kill_after_effect = number, after_effect
    case.ask()
    await case.until_done()
    assert case.committed() == case.lost


async def test_a_store_that_does_not_answer_is_told_and_nothing_is_made(case):
    """PB4."""
    case.world._store = lambda args: "Unreachable: the store does not answer"
    case.ask()
    await case.until_done()
    assert case.said()["ImportFailed"] == "Unreachable: the store does not answer"
    assert case.asked == "failed: Unreachable: the store does not answer"
    assert case.committed() == {}


async def test_entries_that_make_no_sense_are_passed_over(case):
    """AA7: an agent's word is checked like any other input."""
    bad = {"id": "../../x", "step": 1, "epoch": 1, "bytes": 1, "digest": "d", "shards": 1, "copies": 1}
    case.world._store = lambda args: {"storeId": "s", "found": [bad, {}, 7], "last": ""}
    case.ask()
    await case.until_done()
    assert case.world.checkpoints() == []


@pytest.mark.parametrize(
    ("known", "listed", "kept"),
    [
        ([], [record(1, 0, 20)], [(1, 0, 20)]),
        ([record(1, 0, 20)], [record(2, 1, 35)], [(1, 0, 20), (2, 1, 35)]),
        ([record(2, 1, 35)], [record(1, 0, 20)], [(1, 0, 20), (2, 1, 35)]),
        ([record(1, 0, 99)], [record(1, 0, 20)], [(1, 0, 20)]),
        (
            [record(1, 0, 1)],
            [record(n, n - 1, n) for n in range(2, 70)],
            [(n, n - 1, n) for n in range(6, 70)],
        ),
    ],
    ids=["none is known", "a later one", "an older one", "another of that number", "more than are kept"],
)
async def test_timelines_of_the_store_are_added_and_their_words_hold(case, known, listed, kept):
    """CK6, RS6: the record in the store is the truth, and the last one is the current timeline."""
    case.know(known)
    case.world.timelines = listed
    case.ask()
    await case.until_done()
    assert [(each.number, each.parent, each.step) for each in case.world.status.timelines] == kept


@pytest.mark.parametrize("listed", [[], [record(1, 0, 20)], [{"number": -1}], [7], None, "none"])
async def test_timelines_that_are_known_or_make_no_sense_cost_no_write(case, listed):
    """CK6, AA7: what is known stays."""
    case.know([record(1, 0, 20)])
    case.world.timelines = listed
    case.ask()
    case.world.api.writes.clear()
    await case.until_done()
    assert "CheckpointsImported" in case.said()
    assert [each.dump() for each in case.world.status.timelines] == [record(1, 0, 20)]
    assert ("patch status", "Trainer", "t") not in case.world.api.writes


async def test_a_trainer_that_trains_is_refused():
    """RS6: its members are the store's clients."""
    case = Case()
    case.operators = [Operator(case.world)]
    await case.run(8)
    case.ask()
    await case.until_done()
    assert case.said()["ImportRefused"].endswith("suspend it first")
    assert case.world.api.log.get(TRAINERS, ObjectKey(KEY.namespace, KEY.name)) is not None
