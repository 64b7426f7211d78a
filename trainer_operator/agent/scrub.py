"""The scrub: every copy of a checkpoint is read and hashed within a budget of bytes, and mended from a good one (PB1-PB3).

    what is found                          what is done
    chunk or index damaged or missing      written again under the same key, after a full hash match (PB2)
    copy that nobody ever completed        its chunks and index, then `extra/<s>.r<k>` (PB3)
    all copies of a chunk bad              reported: the shard is lost
    the store refuses to be mended         reported: the copy stays bad, the reason goes with it
    another, an empty or a mute store      StoreError: of the checkpoint nothing is known then (CK7, PB4)

It never deletes, and writes only what it has just hashed.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from trainer_operator.agent import copies, index, store
from trainer_operator.agent.backends import Home, NoRights, NotFound, Passing, StoreError
from trainer_operator.agent.index import INDEX_VERSION, MAX_INDEX_BYTES, Index
from trainer_operator.agent.records import Malformed, dump_record, parse_record
from trainer_operator.agent.store import MAX_RECORD_BYTES, CheckpointDir
from trainer_operator.agent.storeops import text, whole

BYTES_PER_SECOND = 50_000_000
_MAX_COPIES = 16
_TOLD = 8
"""Bad objects that are named; the others are counted."""
_BUSY_PAUSE = 1.0


class Throttle:
    """A budget of bytes in a second, which rests while something more important goes on."""

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float],
        pause: Callable[[float], object],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._rate, self._clock, self._pause, self._is_busy = rate, clock, pause, is_busy
        self._free_at = clock()

    def take(self, count: int) -> None:
        """Wait until `count` bytes may be read or written."""
        while self._is_busy():
            self._pause(_BUSY_PAUSE)
        now = self._clock()
        if self._free_at > now:
            self._pause(self._free_at - now)
        self._free_at = max(self._free_at, now) + count / self._rate


@dataclass(frozen=True)
class Piece:
    """A chunk where one copy has it."""

    key: str
    sha256: str
    length: int


@dataclass
class Report:
    """What a scrub found and did."""

    bytes: int = 0
    """Read and hashed."""
    damaged: int = 0
    missing: int = 0
    repaired: int = 0
    """Objects written again."""
    completed: int = 0
    """Copies that were missing, and are there now."""
    lacking: int = 0
    """Copies that are still missing or bad."""
    lost: List[int] = field(default_factory=list)
    """Shards without a good copy."""
    bad: List[str] = field(default_factory=list)
    """The first objects that were damaged or missing, each with a word."""
    refused: str = ""
    """Why something could not be mended, as reason and sentence."""

    def note(self, where: CheckpointDir, key: str, *, missing: bool) -> None:
        """Count a bad object."""
        self.missing += missing
        self.damaged += not missing
        if len(self.bad) < _TOLD:
            path = key[len(where.home.folder) + 1 :]
            self.bad.append("%s is %s" % (path, "missing" if missing else "damaged"))

    def value(self) -> Dict[str, Any]:
        """Return it as the directive's result."""
        return {**self.__dict__, "lost": self.lost[:64]}


def run(home: Home, args: Mapping[str, Any], *, is_busy: Callable[[], bool]) -> Dict[str, Any]:
    """Carry out a Scrub directive: `ckpt`, `storeId`, and `bytesPerSecond` if it is not the default.

    Raises: BadArguments; StoreError when nothing can be said of the checkpoint.
    """
    rate = whole(args, "bytesPerSecond", default=BYTES_PER_SECOND) or BYTES_PER_SECOND
    throttle = Throttle(rate, clock=time.monotonic, pause=time.sleep, is_busy=is_busy)
    scrub = Scrub(CheckpointDir(home, text(args, "ckpt")), throttle=throttle)
    return scrub.run(store_id=str(args.get("storeId") or "")).value()


class Scrub:
    """One pass over one checkpoint.

    Guarantees: nothing is deleted; an object is written only with content that matches its hash, and only where it
    was damaged or missing; repeatable from any point.
    """

    def __init__(self, where: CheckpointDir, *, throttle: Throttle) -> None:
        self._where, self._throttle = where, throttle
        self._report = Report()
        self._sound: Dict[str, bool] = {}
        """By key, whether its content is good."""

    def run(self, *, store_id: str = "") -> Report:
        """Make the pass.

        Raises: StoreChanged, NoRights, Passing when nothing can be said of the checkpoint; index.NotRestorable when
        it was aborted or is being deleted.
        """
        if store_id:
            store.identify(self._where.home, expected=store_id)
        decision = self._decision()
        if decision is None:
            return self._report
        known = copies.known(self._where, decision)
        wanted = self._wanted_copies()
        for shard, found in sorted(known.items()):
            self._shard(shard, found, wanted=wanted)
        return self._report

    def _decision(self) -> Optional[store.Decision]:
        """Return the commit; without one all is lost, since nothing else tells which data belongs together (CK1)."""
        key = self._where.record("DECISION")
        try:
            decision = store.read_decision(self._where)
        except Malformed:
            self._report.note(self._where, key, missing=False)
            self._report.lost.append(0)
            return None
        if store.is_collected(self._where):
            raise index.NotRestorable("%s is being deleted" % self._where.ckpt)
        if decision is None:
            self._report.note(self._where, key, missing=True)
            self._report.lost.append(0)
            return None
        if not decision.committed:
            raise index.NotRestorable("%s was aborted" % self._where.ckpt)
        return decision

    def _wanted_copies(self) -> Set[int]:
        """Return the copies that were to be made, as INTENT says."""
        try:
            raw = self._where.store.get(self._where.record("INTENT"), limit=MAX_RECORD_BYTES)
            count = parse_record(raw, "INTENT").get("copies")
        except (NotFound, Malformed):
            return set()
        return set(range(min(count, _MAX_COPIES))) if isinstance(count, int) else set()

    def _shard(self, shard: int, found: Mapping[int, str], *, wanted: Set[int]) -> None:
        raw = self._indexes(shard, found)
        if not raw:
            self._report.lost.append(shard)
            self._report.lacking += len(wanted | set(found))
            return
        pieces = {copy: list(_pieces(self._where, index.parse(content))) for copy, content in raw.items()}
        keys: Dict[str, List[str]] = {}
        for copy in sorted(pieces):
            for piece in pieces[copy]:
                self._check(piece)
                keys.setdefault(piece.sha256, []).append(piece.key)
        bad = {
            copy
            for copy, listed in pieces.items()
            for piece in listed
            if not self._mend(piece, keys[piece.sha256])
        }
        good = set(pieces) - bad
        for copy in sorted(wanted - set(found)):
            if good and self._complete(shard, copy, raw[min(good)], keys):
                good.add(copy)
        self._report.lacking += len((wanted | set(found)) - good)
        if not good:
            self._report.lost.append(shard)

    # -- indexes

    def _indexes(self, shard: int, found: Mapping[int, str]) -> Dict[int, bytes]:
        """Return the indexes of a shard's copies, mended from each other: they differ in the copy's number only."""
        raw: Dict[int, bytes] = {}
        bad = []
        for copy, sha256 in sorted(found.items()):
            key = self._where.index(shard, copy)
            content, missing = self._read(key, sha256, limit=MAX_INDEX_BYTES)
            if content is not None:
                raw[copy] = content
            else:
                self._report.note(self._where, key, missing=missing)
                bad.append((copy, key, sha256, missing))
        for copy, key, sha256, missing in bad:
            again = _as_copy(next(iter(raw.values())), copy) if raw else b""
            if hashlib.sha256(again).hexdigest() == sha256 and self._write(key, again, missing=missing):
                raw[copy] = again
        return raw

    def _complete(self, shard: int, copy: int, raw: bytes, keys: Dict[str, List[str]]) -> bool:
        """Make a copy that nobody completed, and let it count (PB3)."""
        own = _as_copy(raw, copy)
        for piece in _pieces(self._where, index.parse(own)):
            if not self._check(piece, quietly=True) and not self._mend(piece, keys[piece.sha256]):
                return False
        key, sha256 = self._where.index(shard, copy), hashlib.sha256(own).hexdigest()
        try:
            self._where.store.create(key, own)
            done = copies.register(self._where, shard, copy, sha256=sha256)
        except Passing:
            raise
        except StoreError as error:  # for one, a late holder wrote another index (QR5)
            self._refuse(error)
            return False
        self._report.completed += done
        return done

    # -- chunks

    def _check(self, piece: Piece, *, quietly: bool = False) -> bool:
        """Read and hash a chunk, once however many tensors hold it."""
        if piece.key not in self._sound:
            content, missing = self._read(piece.key, piece.sha256, limit=piece.length)
            self._sound[piece.key] = content is not None
            if content is None and not quietly:
                self._report.note(self._where, piece.key, missing=missing)
        return self._sound[piece.key]

    def _mend(self, piece: Piece, keys: List[str]) -> bool:
        """Write a bad chunk again from the first good one; true when it is good now."""
        if self._sound[piece.key]:
            return True
        for other in keys:
            if other == piece.key or not self._sound.get(other):
                continue
            content, _ = self._read(other, piece.sha256, limit=piece.length)
            if content is not None:
                self._sound[piece.key] = self._write(piece.key, content, missing=self._is_absent(piece.key))
                return self._sound[piece.key]
        return False

    def _is_absent(self, key: str) -> bool:
        try:
            self._where.store.get_range(key, start=0, length=1)
        except NotFound:
            return True
        return False

    def _read(self, key: str, sha256: str, *, limit: int) -> Tuple[Optional[bytes], bool]:
        """Return a content that matches its hash, or None and whether the object is absent."""
        self._throttle.take(limit if limit < MAX_INDEX_BYTES else 0)
        try:
            content = self._where.store.get(key, limit=limit)
        except (Passing, NoRights):
            raise
        except StoreError as error:
            return None, isinstance(error, NotFound)
        self._report.bytes += len(content)
        return (content, False) if hashlib.sha256(content).hexdigest() == sha256 else (None, False)

    def _write(self, key: str, content: bytes, *, missing: bool) -> bool:
        """Give a key its content back; true when it is durable."""
        self._throttle.take(len(content))
        try:
            if missing:
                self._where.store.create(key, content)
            else:
                self._where.store.put(key, content)
        except Passing:
            raise
        except StoreError as error:
            self._refuse(error)
            return False
        self._report.repaired += 1
        return True

    def _refuse(self, error: StoreError) -> None:
        self._report.refused = self._report.refused or error.told


def _pieces(where: CheckpointDir, found: Index) -> Iterator[Piece]:
    """Yield the chunks that an index lists, where its copy has them."""
    for chunk in found.chunks():
        key = where.sibling(chunk.owner).chunk(found.copy, chunk.sha256)
        yield Piece(key, chunk.sha256, chunk.length)


def _as_copy(raw: bytes, copy: int) -> bytes:
    """Return an index as that of another copy: only its first line names the copy."""
    first, _, rest = raw.partition(b"\n")
    return dump_record({**parse_record(first, "index", newest=INDEX_VERSION), "copy": copy}) + rest
