"""Thousands of checkpoints in one store, as the benchmark makes them: what a listing and a collection hold in memory."""

import tracemalloc

import pytest

from benchmarks.checkpoint.many import fill
from trainer_operator.agent import census, store, storeops
from trainer_operator.agent.backends import Home
from trainer_operator.agent.backends.file import FileStore

COUNT = 120
PER_CHECKPOINT = 2_000
"""Bytes of memory for each that is listed, so 20 MB for 10,000; the decisions of 64 shards have four times as many."""


@pytest.fixture
def home(tmp_path):
    fill(tmp_path, COUNT, shards=1)
    for ckpt in store.ids(Home(FileStore(str(tmp_path)), "n/t")):
        decision = tmp_path / "n" / "t" / "ckpt" / ckpt / "DECISION"
        shard = '"0":{"copies":{"0":"' + "a" * 64 + '"}}'
        many = ",".join(shard.replace('"0":{', f'"{number}":{{', 1) for number in range(64))
        decision.write_text(decision.read_text().replace('"shards":{', '"shards":{' + many + ",", 1))
    return Home(FileStore(str(tmp_path)), "n/t")


def peak(function):
    """Return what a function returns, and how much memory it held at most."""
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_memory_of_a_collection_is_bounded_by_names_and_not_by_decisions(home):
    """KT7, GC5: whoever lives is held by name, with those whose data it refers to."""
    found, held = peak(lambda: census.take(home))
    assert len(found.alive) == COUNT
    assert held < COUNT * PER_CHECKPOINT + 1_000_000


def test_all_are_collected_within_the_same_memory_and_looked_at_a_few_times(home, monkeypatch):
    """KT7, CS12: not once for each other one, as their number squared would take hours."""
    reads = []
    read = FileStore.get_range
    monkeypatch.setattr(FileStore, "get_range", lambda *a, **k: reads.append(1) or read(*a, **k))
    done, held = peak(lambda: storeops.run(home, {"op": "purge"}))
    assert done["left"] == []
    assert len(reads) < 20 * COUNT
    assert held < COUNT * PER_CHECKPOINT + 1_000_000
