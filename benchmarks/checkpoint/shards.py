"""How long a commit takes after the last of many shards is durable, and what it costs the API server (KT6, IV13)."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry

from benchmarks.checkpoint.throttled import ThrottledStore
from benchmarks.result import Column, Ratio, Result, Row, Scale
from runtime.cache.index import OWNER_UID
from runtime.client.rest import Client
from runtime.clock import SystemClock, format_time
from runtime.controller.reconciler import Request
from runtime.objects import JsonObject, ObjectKey, Resource, key_of
from runtime.testing.objectlog import ObjectLog
from trainer_operator.agent import index, store, storeops
from trainer_operator.agent.backends import Home
from trainer_operator.agent.index import Chunk, IndexedTensor
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.checkpoint.reconciler import CheckpointReconciler
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import Ack, Beat, DirectiveResult
from trainer_operator.topology.members import MemberId, Members

__all__ = ["Figures", "commit", "measure"]

_TRAINER, _CHECKPOINT = ObjectKey("n", "t"), ObjectKey("n", "t-1")
_CHUNKS = 8
_LATENCY, _RATE = 0.02, 100e6
_SHARDS = {Scale.QUICK: (16, 128), Scale.FULL: (16, 256, 1024)}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one commit took."""

    seconds: float
    """From the last ack until the object shows the commit."""
    writes: int
    """To the API server, in the life of the checkpoint so far."""
    status_bytes: int


def measure(scale: Scale) -> Result:
    """Commit checkpoints of more and more shards."""
    rows, largest, figures = [], max(_SHARDS[scale]), None
    for shards in _SHARDS[scale]:
        with tempfile.TemporaryDirectory() as folder:
            line = ThrottledStore(folder, bytes_per_second=_RATE, latency=_LATENCY)
            figures = asyncio.run(
                commit(Home(line, "n/t"), shards=shards, written_by=Home(_near(folder), "n/t"))
            )
        values = {
            "seconds": figures.seconds,
            "writes": figures.writes,
            "kilobytes": figures.status_bytes / 1e3,
        }
        rows.append(Row(f"{shards:,} shards", values))
    assert figures is not None
    return Result(
        "shards",
        "Commit: after the last of many shards",
        "The operator's own reconciler and table of members, with an API server in memory; one agent reads all acks and "
        f"indexes from a store in which each request takes {_LATENCY * 1000:g} ms, and writes the DECISION. Counted from "
        "the last ack until the object says Committed.",
        (
            Column("seconds", "seconds", 2),
            Column("writes", "API writes", 0),
            Column("kilobytes", "KB of the object's status"),
        ),
        tuple(rows),
        (
            Ratio(
                f"decision after the last of {largest:,} acks (KT6)", figures.seconds, at_most=2, unit=" s"
            ),
            Ratio("API writes of that checkpoint (KT6, IV13)", figures.writes, at_most=8),
        ),
    )


async def commit(home: Home, *, shards: int, written_by: Home | None = None) -> Figures:
    """Take one checkpoint of so many parameter servers to its commit; members write through another home if given."""
    operator = _Operator(shards)
    await operator.look()
    status = operator.status()
    ckpt, step = status["id"], status["step"]
    where = store.CheckpointDir(written_by or home, ckpt)
    store.identify(where.home)
    for shard in range(shards):
        _write_shard(where, shard)
        operator.hear(shard, step=step, acks=[Ack(ckpt, shard, 0, bytes=1, step=step)])
    began = time.monotonic()
    while status.get("state") != "Committed":
        await operator.look()
        for member, args, directive in operator.told():
            value = await asyncio.to_thread(storeops.run, home, args)
            operator.hear(member, step=step, results=[DirectiveResult(directive, ok=True, value=value)])
        status = operator.status()
        if time.monotonic() - began > 600:
            raise RuntimeError(f"{ckpt} of {shards} shards is not committed: {status}")
    return Figures(time.monotonic() - began, operator.writes, len(str(status)))


class _Operator:
    """The Checkpoint reconciler with all that it talks to, in memory."""

    def __init__(self, shards: int) -> None:
        self._log, self.writes, self._shards = ObjectLog(), 0, shards
        members = frozenset(MemberId("ps", number) for number in range(shards))
        now = format_time(datetime.now(UTC))
        meta = {"namespace": "n", "creationTimestamp": now, "generation": 1}
        trainer = self._log.put(
            TRAINERS,
            {
                "metadata": {**meta, "name": "t"},
                "spec": {
                    "epochs": 1,
                    "image": "i",
                    "command": ["c"],
                    "topology": {"workers": 1, "parameterServers": 1},
                    "checkpoint": {"bucket": "claim"},
                },
                "status": {"phase": "Running", "membership": {"epoch": 1, "phase": "Active"}},
            },
        )
        self._uid = trainer["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Trainer", "name": "t", "uid": self._uid, "controller": True}
        self._log.put(
            CHECKPOINTS,
            {
                "metadata": {**meta, "name": "t-1", "ownerReferences": [owner]},
                "spec": {"trainerRef": {"name": "t", "uid": self._uid}},
            },
        )
        clock = SystemClock()
        self._members, self._seq = Members(clock), 0
        self._reconciler = CheckpointReconciler(
            client=cast("Client", self),
            checkpoints=_Cached(self._log, CHECKPOINTS),
            trainers=_Cached(self._log, TRAINERS),
            members=self._members,
            events=self,
            clock=clock,
            look_again=lambda _key: None,
            members_of=lambda _trainer: members,
            call_janitor=lambda _key: None,
            metrics=TrainerMetrics(CollectorRegistry()),
        )
        for number in range(shards):
            self.hear(number, step=1)

    async def look(self) -> None:
        """Make one pass."""
        await self._reconciler.reconcile(Request(_CHECKPOINT))

    def hear(
        self,
        index: int,
        *,
        step: int,
        acks: list[Ack] | None = None,
        results: list[DirectiveResult] | None = None,
    ) -> None:
        """Take a beat of one member."""
        self._seq += 1
        self._members.accept(
            Beat(
                v=1,
                trainer=str(_TRAINER),
                tuid=self._uid,
                pod=f"pod-{index}",
                role="ps",
                idx=index,
                attempt=0,
                boot=f"boot-{index}",
                seq=self._seq,
                epoch=1,
                run=1,
                proc="running",
                phase="train",
                step=step,
                acks=acks or [],
                results=results or [],
            )
        )

    def told(self) -> list[tuple[int, dict[str, Any], str]]:
        """Return the store operations that members are asked for: whose, with what, and by which id."""
        found = []
        for number in range(self._shards):
            reply = self._members.reply(self._uid, MemberId("ps", number), term=0)
            found += [(number, d["args"], d["id"]) for d in reply["directives"] if d["kind"] == "Store"]
        return found

    def status(self) -> dict[str, Any]:
        """Return the checkpoint's status."""
        found = self._log.get(CHECKPOINTS, _CHECKPOINT) or {}
        return dict(found.get("status") or {})

    async def replace(
        self, resource: Resource, body: JsonObject, *, subresource: str | None = None
    ) -> JsonObject:
        """Store a status, as the API server does."""
        assert subresource == "status"
        self.writes += 1
        before = self._log.get(resource, key_of(body)) or {}
        return self._log.put(resource, {**before, "status": body["status"]})

    def event(self, obj: JsonObject, *, type: str, reason: str, message: str) -> None:
        """Take an event."""


class _Cached:
    """A cache that is never behind."""

    def __init__(self, log: ObjectLog, resource: Resource) -> None:
        self._log, self._resource = log, resource

    def get(self, key: ObjectKey) -> Mapping[str, Any] | None:
        """Return the object."""
        return self._log.get(self._resource, key)

    def by_index(self, index: str, value: str) -> list[Mapping[str, Any]]:
        """Return what a Trainer owns."""
        assert index == OWNER_UID
        found = self._log.objects(self._resource)
        return [each for each in found if each["metadata"]["ownerReferences"][0]["uid"] == value]


def _write_shard(where: store.CheckpointDir, shard: int) -> None:
    """Write index and ack as an agent does; the chunks, which a commit does not read, are left out."""
    step = store.step_of(where.ckpt)
    chunks = tuple(
        Chunk(hashlib.sha256(b"%d %d" % (shard, number)).hexdigest(), 1 << 24, where.ckpt)
        for number in range(_CHUNKS)
    )
    header = {"ckpt": where.ckpt, "step": step, "epoch": 1, "shard": shard, "copy": 0, "meta": {}}
    raw = index.dump(header, [IndexedTensor("weights", "<f4", (_CHUNKS << 22,), chunks)])
    where.store.create(where.index(shard, 0), raw)
    size = _CHUNKS << 24
    ack = store.Ack(hashlib.sha256(raw).hexdigest(), size, "pod", "node", step, 1)
    store.write_ack(where, shard, 0, ack=ack)


def _near(folder: str) -> ThrottledStore:
    return ThrottledStore(str(Path(folder)), bytes_per_second=1e12, latency=0.0)
