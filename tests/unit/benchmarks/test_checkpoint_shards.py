"""A checkpoint of 1,024 shards, from its first pass to its commit, by the benchmark's own operator."""

from benchmarks.checkpoint.shards import commit
from memorystore import MemoryStore
from trainer_operator.agent import store
from trainer_operator.agent.backends import Home


async def test_a_checkpoint_of_1024_shards_costs_a_handful_of_api_writes():
    """KT6, IV13: at most 8, and its DECISION is below 100 kB (CK3)."""
    memory = MemoryStore()
    figures = await commit(Home(memory, "n/t"), shards=1024)
    assert figures.writes <= 8
    (decision,) = (key for key in memory.objects if key.endswith("/DECISION"))
    assert len(memory.objects[decision]) < 100_000 + 1024 * 30
    (ckpt,) = store.committed(Home(memory, "n/t"))
    assert len(store.read_decision(store.CheckpointDir(Home(memory, "n/t"), ckpt)).shards) == 1024
