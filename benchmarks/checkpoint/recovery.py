"""How long a restore takes that fetches only what is missing, against one that fetches all, from one store (KT4, RS2)."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkpoint.throttled import ThrottledStore
from benchmarks.result import Column, Ratio, Result, Row, Scale
from trainer_operator.agent import chunkcache, copying, index, packed, store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.peers import ChunkServer, Keys, Peer, Peers, Roster

__all__ = ["Plan", "measure", "recover"]

_NOTHING = "with nothing on the pod's volume"
_OLDER = "with an older checkpoint on the pod's volume"
_ALL = "with this checkpoint on the pod's volume"
_PEER = "with nothing, and this checkpoint in another pod"
_KEY = "00" * 32
_IDS = ("000000000010-e1-0001", "000000000020-e1-0002")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is restored, and through which line."""

    tensors: int
    changed: int
    """Tensors that differ from the older checkpoint."""
    tensor_bytes: int
    bytes_per_second: float
    latency: float = 0.02


_PLANS = {
    Scale.QUICK: Plan(32, 3, 1024 * 1024, 16e6),
    Scale.FULL: Plan(32, 3, 8 * 1024 * 1024, 25e6),
}


def measure(scale: Scale) -> Result:
    """Restore one checkpoint with nothing, an older one, and all of it on the pod's volume, and from another pod."""
    plan = _PLANS[scale]
    with tempfile.TemporaryDirectory() as folder:
        figures = recover(Path(folder), plan)
    full = figures[_NOTHING]["seconds"]
    size = plan.tensors * plan.tensor_bytes
    return Result(
        "recovery",
        "Recovery: only what is missing",
        f"One shard of {size / 1e6:,.0f} MB in {plan.tensors} tensors, of which {plan.changed} differ from the older "
        f"checkpoint; a store behind a line of {plan.bytes_per_second / 1e6:g} MB/s that all requests share, each with "
        f"{plan.latency * 1000:g} ms besides; every byte is compared with its hash in all rows; the other pod is an agent on the same machine, behind no line.",
        (Column("seconds", "seconds", 2), Column("fetched", "MB from the store")),
        tuple(Row(what, values) for what, values in figures.items()),
        (
            Ratio(
                "full recovery over incremental (KT4)",
                full / figures[_OLDER]["seconds"],
                at_least=4,
                unit=" times",
            ),
            Ratio("full recovery over one in the same pod", full / figures[_ALL]["seconds"], unit=" times"),
            Ratio("full recovery over one from another pod", full / figures[_PEER]["seconds"], unit=" times"),
        ),
    )


def recover(folder: Path, plan: Plan) -> dict[str, dict[str, float]]:
    """Save two checkpoints, restore the second one in four pods, and return the seconds and bytes of each."""
    content = {f"layer{number}": os.urandom(plan.tensor_bytes) for number in range(plan.tensors)}
    saved = Home(_line(folder, plan), "trainer")
    caches = {what: folder / str(number) for number, what in enumerate((_NOTHING, _OLDER, _ALL))}
    for name, (number, ckpt) in zip((_OLDER, _ALL), enumerate(_IDS), strict=True):
        for changed in list(content)[: plan.changed * number]:
            content[changed] = os.urandom(plan.tensor_bytes)
        _save(folder, saved, ckpt, content, cache=caches[name])
    figures = {}
    with _serving(caches[_ALL]) as roster:
        for what in (_NOTHING, _OLDER, _ALL, _PEER):
            line = _line(folder, plan)
            peers = Peers(roster) if what == _PEER else None
            home = chunkcache.cached(
                Home(line, "trainer"), str(caches.get(what, folder / "new")), peers=peers
            )
            began = time.monotonic()
            _, found = index.read_shard(store.CheckpointDir(home, _IDS[1]), 0)
            seconds = time.monotonic() - began
            if peers is not None:
                peers.close()
            if found != content:
                raise RuntimeError(f"what was restored {what} is not what was saved")
            figures[what] = {"seconds": seconds, "fetched": line.fetched / 1e6}
    return figures


@contextmanager
def _serving(cache: Path) -> Iterator[Roster]:
    """Serve a folder as the agent of another pod does."""
    keys = Keys("uid")
    keys.learn(1, _KEY)
    server = ChunkServer("127.0.0.1", open_chunk=chunkcache.ChunkCache(str(cache)).open, keys=keys)
    try:
        yield Roster("uid", 1, _KEY, (Peer("127.0.0.1", server.port),))
    finally:
        server.close()


def _line(folder: Path, plan: Plan) -> ThrottledStore:
    return ThrottledStore(str(folder / "store"), bytes_per_second=plan.bytes_per_second, latency=plan.latency)


def _save(folder: Path, home: Home, ckpt: str, content: dict[str, bytes], *, cache: Path) -> None:
    """Save and commit as an agent does, whose pod keeps what it saves."""
    step = store.step_of(ckpt)
    sources = [packed.Source(name, "|u1", (len(data),), memoryview(data)) for name, data in content.items()]
    spool = str(folder / "spool")
    packed.write(spool, sources, step=step, ps_epoch=0, meta={})
    where = store.CheckpointDir(chunkcache.keeping(lambda: home, str(cache))(), ckpt)
    done = copying.write_copy(where, packed.read_header(spool), shard=0, copy=0, epoch=1)
    store.write_ack(where, 0, 0, ack=done.ack("pod", "node", step=step, epoch=1))
    store.decide_commit(where, shards=1, copies=1, step=step, epoch=1, reason="Interval", nonce="n")
    os.unlink(spool)
