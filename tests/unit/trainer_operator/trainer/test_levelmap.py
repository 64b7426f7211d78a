"""The ConfigMap with the levels: when it is read, and what becomes of one that cannot be used."""

import pytest

from runtime.client.errors import Forbidden, InternalError
from runtime.objects import CONFIGMAPS
from runtime.testing.clock import SimClock
from simulation.apiserver import Api
from trainer_operator.trainer.levelmap import FRESH, LevelMap
from trainer_operator.trainer.levels import BUILT_IN, Level

PLACE = "ConfigMap trainer-topology in namespace ours"


class Counting(Api):
    """Counts what is read, and fails when it is told to."""

    reads = 0
    error = None

    async def get(self, resource, name, namespace=None):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await super().get(resource, name, namespace)


class Case:
    def __init__(self):
        self.clock = SimClock()
        self.api = Counting(self.clock)
        self.map = LevelMap(self.api, self.clock, "ours")

    def write(self, levels):
        metadata = {"name": "trainer-topology", "namespace": "ours"}
        self.api.log.put(CONFIGMAPS, {"metadata": metadata, "data": {"levels": levels}})


@pytest.fixture
def case():
    return Case()


async def test_without_the_config_map_the_levels_are_the_built_in_ones(case):
    """TP6."""
    assert await case.map.read() == BUILT_IN


async def test_a_change_counts_for_the_starts_that_follow_and_one_answer_serves_many(case):
    """TP6, TR17."""
    assert await case.map.read() == BUILT_IN
    case.write("[{name: rack, labels: [example.com/rack]}]")
    assert await case.map.read() == BUILT_IN
    assert case.api.reads == 1
    case.clock.advance(FRESH)
    assert (await case.map.read())[0] == Level("rack", ("example.com/rack",))
    assert case.api.reads == 2


async def test_one_that_cannot_be_used_is_one_sentence(case):
    """TP5: not the built-in levels, which may mean something else."""
    case.write("rack")
    found = await case.map.read()
    assert found == f"{PLACE} cannot be used: levels is no YAML list of levels, each with name and labels"


async def test_one_that_may_not_be_read_is_one_sentence(case):
    """RB1: an older role."""
    case.api.error = Forbidden("no", status=403, reason="Forbidden")
    found = await case.map.read()
    assert found.startswith(f"{PLACE} cannot be read: let the operator get it")


async def test_a_server_that_fails_is_asked_again(case):
    """TR19."""
    case.api.error = InternalError("no", status=500)
    with pytest.raises(InternalError):
        await case.map.read()
    case.api.error = None
    assert await case.map.read() == BUILT_IN
