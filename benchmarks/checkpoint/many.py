"""What memory it takes to list and to collect thousands of checkpoints of one Trainer (KT7)."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from benchmarks.child import python, run
from benchmarks.result import Column, Ratio, Result, Row, Scale
from trainer_operator.agent import index, store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.backends.file import FileStore
from trainer_operator.agent.index import Chunk, IndexedTensor
from trainer_operator.agent.records import dump_record

__all__ = ["fill", "measure"]

_COUNTS = {Scale.QUICK: (100, 500), Scale.FULL: (1000, 10_000)}
_SHARDS = 2


def measure(scale: Scale) -> Result:
    """List and collect more and more checkpoints."""
    rows, figures, most = [], {}, max(_COUNTS[scale])
    for count in _COUNTS[scale]:
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), count, shards=_SHARDS)
            figures = run(python("benchmarks.checkpoint.manycase", folder))
        if figures["left"] or figures["listed"] != count:
            raise RuntimeError(
                f"of {count} checkpoints {figures['listed']} were listed, {figures['left']} left"
            )
        rows.append(Row(f"{count:,} checkpoints", {**figures, "over": figures["peak"] - figures["idle"]}))
    return Result(
        "many",
        "Many checkpoints in one store",
        f"Committed checkpoints of {_SHARDS} shards in a directory, each of which refers to data of the first and has "
        "some of its own. One agent lists all, as an import does, collects the oldest, and then all of them, as the "
        "deletion of a Trainer does.",
        (
            Column("over", "MB over idle at most"),
            Column("list", "s to list"),
            Column("one", "s to collect one"),
            Column("all", "s to collect all"),
        ),
        tuple(rows),
        (Ratio(f"memory for {most:,} checkpoints (KT7)", rows[-1].values["over"], at_most=100, unit=" MB"),),
    )


def fill(root: Path, count: int, *, shards: int) -> None:
    """Write so many committed checkpoints. Files are written as they are, since each sync would take milliseconds."""
    home = Home(FileStore(str(root)), "n/t")
    store.identify(home)
    first = store.checkpoint_id(1, 1, suffix="00ab")
    for step in range(1, count + 1):
        where = store.CheckpointDir(home, store.checkpoint_id(step, 1, suffix="00ab"))
        found: dict[str, bytes] = {
            where.record("INTENT"): dump_record({"v": 1, "ckpt": where.ckpt, "copies": 1})
        }
        decided = {}
        for shard in range(shards):
            chunks = []
            for content, owner in ((b"own %d %d" % (step, shard), where.ckpt), (b"frozen %d" % shard, first)):
                sha256 = hashlib.sha256(content).hexdigest()
                chunks.append(Chunk(sha256, len(content), owner))
                if owner == where.ckpt:
                    found[where.chunk(0, sha256)] = content
            header = {"ckpt": where.ckpt, "step": step, "epoch": 1, "shard": shard, "copy": 0, "meta": {}}
            tensors = [
                IndexedTensor(f"t{n}", "|u1", (chunk.length,), (chunk,)) for n, chunk in enumerate(chunks)
            ]
            raw = index.dump(header, tensors)
            found[where.index(shard, 0)] = raw
            decided[str(shard)] = {"copies": {"0": hashlib.sha256(raw).hexdigest()}}
        decision = {"v": 1, "outcome": "commit", "step": step, "epoch": 1, "nonce": "n", "bytes": 1}
        owners = [first] if step > 1 else []
        found[where.record("DECISION")] = dump_record({**decision, "shards": decided, "owners": owners})
        for key, content in found.items():
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
