"""Writes the audit trail, behind the back of what it is about (AU4, AU5, AU10).

`record` puts an entry into a bounded queue and returns. One task of the leader gives each its place in the chain:

    read the chain, once ──▶ create <chain>-<n+1> ──▶ move the anchor ──▶ remove the oldest, if there are many
            ▲                     │ exists already
            └── follow it ◀───────┘

A record is created under a name that only one can have, so of two leaders one sees the other's and goes on behind it. What
is written already is known by its id: an answer that was lost, or a leader that died in between, makes no second record.
A failure is tried again with growing pauses, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from runtime.client.errors import AlreadyExists, BadRequest, Invalid, NotFound
from runtime.client.rest import ListResult
from runtime.clock import Clock
from runtime.errors import RuntimeFault
from runtime.logs import get_logger, redact
from runtime.objects import CONFIGMAPS, JsonObject, Resource
from trainer_operator.api.resources import AUDIT_LOGS
from trainer_operator.audit.chain import (
    PRUNED,
    RECORDS_LOST,
    Entry,
    Head,
    name_of,
    place_of,
    read_anchor,
    seal,
    series_of,
    write_anchor,
)

NAMESPACE = "kubeflow-audit"
ANCHORS = "trainer-audit-anchors"
"""The ConfigMap with the anchor of each chain."""
CHAIN_FIELD = "spec.objectRef.namespace"
QUEUE_SIZE = 1000
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0
KEPT, SLACK = 1000, 100
"""Records of a chain that are kept, and by how many more they are exceeded before the oldest are removed."""
_log = get_logger("audit")


class Records(Protocol):
    """Where entries go."""

    def record(self, entry: Entry, *, owed: bool = False) -> None:
        """Take an entry, which may be recorded already; never blocks and never fails."""


class AuditClient(Protocol):
    """The part of the client that is used here."""

    async def list(
        self, resource: Resource, namespace: str | None = None, *, fields: str | None = None
    ) -> ListResult:
        """Read a whole collection."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Read an object."""

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Create an object."""

    async def patch(
        self, resource: Resource, name: str, body: Any, *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Change an object."""

    async def delete(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> dict[str, Any] | None:
        """Delete an object."""


@dataclass(slots=True)
class _Chain:
    """What is known of one chain."""

    head: Head
    oldest: int
    ids: set[str] = field(default_factory=set)
    counted: dict[str, int] = field(default_factory=dict)
    """The last number of each series."""
    removed_until: str = ""
    """Time of the newest record that was removed."""
    removed_through: int = 0

    def take(self, spec: Mapping[str, Any]) -> None:
        """Go on behind a record."""
        entry_id = str(spec["auditID"])
        self.ids.add(entry_id)
        counted = series_of(entry_id)
        if counted is not None:
            self.counted[counted[0]] = max(counted[1], self.counted.get(counted[0], 0))
        if spec["sequence"] > self.head.sequence:
            self.head = Head(int(spec["sequence"]), str(spec["hash"]))
        if spec["action"] == PRUNED:
            self.removed_until = str(spec["details"].get("until", ""))
            self.removed_through = max(self.removed_through, int(spec["details"].get("through", 0)))


class AuditWriter:
    """Appends entries to the chains of their namespaces.

    Guarantees: each id is recorded once among the records that are kept; the order of one namespace is kept; memory is bounded by the queue, by the records
    that are kept of the chains in use, and by what is owed, two entries for each Trainer at most.
    Assumptions: only the leader runs it; its client refuses to write once it does not lead any more.
    """

    def __init__(
        self,
        client: AuditClient,
        clock: Clock,
        namespace: str = NAMESPACE,
        *,
        kept: int = KEPT,
        slack: int = SLACK,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._kept, self._slack = kept, slack
        self._queue: deque[tuple[Entry, bool]] = deque()
        self._plain = 0
        """Entries in the queue that are not owed."""
        self._filled = asyncio.Event()
        self._chains: dict[str, _Chain] = {}
        self._lost: dict[str, int] = {}
        """Entries that found the queue full and that nothing else tells of, by chain."""

    def record(self, entry: Entry, *, owed: bool = False) -> None:
        """Queue an entry. What is `owed` can be told again from what is stored, and is as many as there are objects."""
        chain = self._chains.get(entry.chain)
        if chain is not None and entry.id in chain.ids:
            return
        if not owed and self._plain >= QUEUE_SIZE:
            if series_of(entry.id) is None or entry.action not in _NUMBERED:
                self._lost[entry.chain] = self._lost.get(entry.chain, 0) + 1
            return
        self._plain += not owed
        self._queue.append((entry, owed))
        self._filled.set()

    @property
    def waiting(self) -> int:
        """Return how many entries are not recorded yet."""
        return len(self._queue)

    async def run(self) -> None:
        """Record what is queued until cancelled; what is left then is owed by the next leader."""
        pause = FIRST_PAUSE
        while True:
            await self._filled.wait()
            try:
                await self.flush()
            except (Invalid, BadRequest) as error:  # for good
                entry = self._take()
                _log.error("an audit record was refused and is lost", id=entry.id, problem=str(error))
                self._lost[entry.chain] = self._lost.get(entry.chain, 0) + 1
            except RuntimeFault as error:
                if pause in {FIRST_PAUSE, LAST_PAUSE}:
                    _log.warning("audit records wait", waiting=self.waiting, problem=str(error))
                if isinstance(error, NotFound):
                    self._chains.clear()  # somebody took away what is known of them
                await self._clock.sleep(pause)
                pause = min(LAST_PAUSE, pause * 2)
            else:
                pause = FIRST_PAUSE
                self._filled.clear()

    async def flush(self) -> None:
        """Record what is queued, in order.

        Raises: RuntimeFault at the first entry that cannot be recorded, which stays in front.
        """
        while self._queue:
            await self._append(*self._queue[0])
            self._take()

    def _take(self) -> Entry:
        entry, owed = self._queue.popleft()
        self._plain -= not owed
        return entry

    async def _append(self, entry: Entry, owed: bool) -> None:
        """Give an entry its place, after word of what was lost before it; it may be tried again after any failure."""
        chain = self._chains.get(entry.chain)
        if chain is None:
            chain = self._chains[entry.chain] = await self._read(entry.chain)
        if entry.id in chain.ids:
            return
        if owed and chain.removed_until and _moment(entry.time) <= _moment(chain.removed_until):
            return  # so old that it was removed again
        for lost in self._losses(chain, entry):
            await self._create(entry.chain, chain, lost)
        self._lost.pop(entry.chain, None)
        await self._create(entry.chain, chain, entry)
        if chain.head.sequence - chain.oldest + 1 > self._kept + self._slack:
            await self._declare_removal(entry.chain, chain, entry)
        await self._move_anchor(entry.chain, chain)
        await self._remove(entry.chain, chain)

    async def _read(self, name: str) -> _Chain:
        """Read a chain as it is; where its newest records are gone, go on behind them, so that it shows (AU5)."""
        found = await self._client.list(AUDIT_LOGS, self._namespace, fields=f"{CHAIN_FIELD}={name}")
        specs = {
            place[1]: each["spec"]
            for each in found.items
            if (place := place_of(each["metadata"]["name"])) is not None and place[0] == name
        }
        chain = _Chain(Head(), min(specs, default=0))
        for number in sorted(specs):
            chain.take(specs[number])
        anchor = read_anchor((await self._anchors()).get(name, ""))
        if anchor is not None and anchor.sequence > chain.head.sequence:
            _log.error(
                "audit records are missing", chain=name, after=chain.head.sequence, until=anchor.sequence
            )
            chain.head = anchor
        chain.oldest = chain.oldest or chain.head.sequence + 1
        return chain

    async def _anchors(self) -> dict[str, str]:
        try:
            return (await self._client.get(CONFIGMAPS, ANCHORS, self._namespace)).get("data") or {}
        except NotFound:
            return {}

    def _losses(self, chain: _Chain, entry: Entry) -> list[Entry]:
        """Return records of what is missing before this one."""
        found = []
        overflow = self._lost.get(entry.chain, 0)
        if overflow:
            found.append(_loss(entry, "queue", overflow, "the queue was full"))
        counted = series_of(entry.id)
        if counted is not None and entry.action in _NUMBERED:
            series, number = counted
            last = chain.counted.get(series, number - 1 if chain.removed_until else 0)
            if number > last + 1:
                found.append(
                    _loss(entry, "before", number - last - 1, f"{entry.action} {last + 1} to {number - 1}")
                )
        if entry.needs and entry.needs not in chain.ids:
            found.append(_loss(entry, "needs", 1, f"{entry.needs.split('/')[1]} of this {entry.action}"))
        return [loss for loss in found if loss.id not in chain.ids]

    async def _create(self, name: str, chain: _Chain, entry: Entry) -> None:
        """Create a record at the first place that is free."""
        details = redact(None, "", dict(entry.details))
        entry = replace(entry, details={key: str(value) for key, value in details.items()})
        while entry.id not in chain.ids:
            spec = seal(entry, chain.head)
            record = name_of(name, spec["sequence"])
            body = {
                "apiVersion": AUDIT_LOGS.api_version,
                "kind": AUDIT_LOGS.kind,
                "metadata": {"name": record, "namespace": self._namespace},
                "spec": spec,
            }
            try:
                await self._client.create(AUDIT_LOGS, body, namespace=self._namespace)
            except AlreadyExists:
                found = await self._client.get(AUDIT_LOGS, record, self._namespace)
                chain.take(found["spec"])
            else:
                chain.take(spec)

    async def _move_anchor(self, name: str, chain: _Chain) -> None:
        body = {"data": {name: write_anchor(chain.head)}}
        try:
            await self._client.patch(CONFIGMAPS, ANCHORS, body, namespace=self._namespace)
        except NotFound:
            _log.warning("there is no ConfigMap for anchors: apply deploy/base again", name=ANCHORS)

    async def _declare_removal(self, name: str, chain: _Chain, entry: Entry) -> None:
        """Record the hash of the newest record that will be removed, before any is."""
        through = chain.head.sequence - self._kept
        found = await self._client.get(AUDIT_LOGS, name_of(name, through), self._namespace)
        last = found["spec"]
        details = {"through": str(through), "hash": last["hash"], "until": last["time"]}
        pruned = replace(entry, id=f"{name}/pruned/{through}", action=PRUNED, details=details, needs="")
        await self._create(name, chain, pruned)

    async def _remove(self, name: str, chain: _Chain) -> None:
        """Remove the oldest records, the oldest first, up to where a record says so."""
        while chain.oldest <= chain.removed_through:
            try:
                await self._client.delete(AUDIT_LOGS, name_of(name, chain.oldest), self._namespace)
            except NotFound:
                pass
            chain.oldest += 1


_NUMBERED = frozenset({"Restart"})
"""Actions of which none may be left out."""


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _loss(entry: Entry, kind: str, count: int, what: str) -> Entry:
    return replace(
        entry,
        id=f"{entry.id}/{kind}",
        action=RECORDS_LOST,
        details={"count": str(count), "what": what},
        needs="",
    )
