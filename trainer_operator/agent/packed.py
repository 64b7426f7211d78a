"""A packed file: tensors of one step in one file, as the training process hands them over.

Used twice: the spool (SDK to agent, on the way to the store) and the ring (a parameter server's last snapshots).

    line 1     JSON header {"v", "step", "psEpoch", "meta", "bytes", "tensors": [{"name", "dtype", "shape", "offset",
               "length"[, "unchanged"]}]}
    then       the tensors' bytes, one after the other
    last 32    sha256 of everything before; not in the spool, whose header has {"hashed": false}

A tensor in the spool may be marked as unchanged since the base that the agent named; then its bytes may be left out.

The file gets its name by rename once it is whole. No fsync: both uses are inside one pod, which a power loss takes away
as a whole. A snapshot of the ring lies there for long, so it has a hash; a torn one fails it and counts as absent. The
spool is read at once, and training waits while it is written, which a hash would double (FZ3).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from trainer_operator.agent.records import Malformed, parse_record

MAX_HEADER_BYTES = 64 * 1024 * 1024
_DIGEST_BYTES = 32
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Tensor:
    """Where one tensor lies in the data part."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    offset: int
    length: int
    """Bytes of it in the file."""
    unchanged: bool = False
    """Whether the process takes it for unchanged since the base; then its bytes may be missing (FZ1)."""


@dataclass(frozen=True)
class Packed:
    """The header of a packed file; `data_start` is the offset of its data part."""

    path: str
    step: int
    ps_epoch: int
    meta: Mapping[str, Any]
    tensors: Tuple[Tensor, ...]
    data_start: int
    hashed: bool = True


@dataclass(frozen=True)
class Source:
    """A tensor to be packed: any object with the buffer protocol, in C order."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    data: memoryview
    unchanged: bool = False


def write(
    path: str,
    sources: Sequence[Source],
    *,
    step: int,
    ps_epoch: int,
    meta: Mapping[str, Any],
    hashed: bool = True,
) -> int:
    """Write a packed file and return its number of data bytes.

    Guarantees: `path` is whole or absent, whenever the process is killed.
    """
    tensors: List[Dict[str, Any]] = []
    offset = 0
    for source in sources:
        check_name(source.name)
        length = source.data.nbytes
        tensor = {
            "name": source.name,
            "dtype": source.dtype,
            "shape": list(source.shape),
            "offset": offset,
            "length": length,
        }
        tensors.append({**tensor, "unchanged": True} if source.unchanged else tensor)
        offset += length
    header = {
        "v": 1,
        "step": step,
        "psEpoch": ps_epoch,
        "meta": dict(meta),
        "bytes": offset,
        "tensors": tensors,
    }
    if not hashed:
        header["hashed"] = False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = "%s.%s.tmp" % (path, secrets.token_hex(4))
    digest = hashlib.sha256()
    try:
        with open(temporary, "wb") as file:
            line = json.dumps(header, separators=(",", ":")).encode() + b"\n"
            digest.update(line)
            file.write(line)
            for source in sources:
                if source.data.nbytes:
                    flat = source.data.cast("B")
                    if hashed:
                        digest.update(flat)
                    file.write(flat)
            if hashed:
                file.write(digest.digest())
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return offset


def read_header(path: str) -> Packed:
    """Read and check the header only.

    Raises: Malformed; OSError.
    """
    with open(path, "rb") as file:
        line = file.readline(MAX_HEADER_BYTES)
    header = parse_record(line, os.path.basename(path))
    try:
        tensors = tuple(
            Tensor(
                str(entry["name"]),
                str(entry["dtype"]),
                tuple(int(size) for size in entry["shape"]),
                int(entry["offset"]),
                int(entry["length"]),
                bool(entry.get("unchanged")),
            )
            for entry in header["tensors"]
        )
        step, ps_epoch, meta = int(header["step"]), int(header["psEpoch"]), dict(header["meta"])
        total, hashed = int(header["bytes"]), header.get("hashed") is not False
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed("%s has a header without %s" % (os.path.basename(path), error)) from error
    expected = 0
    for tensor in tensors:
        check_name(tensor.name)
        if tensor.offset != expected or tensor.length < 0:
            raise Malformed("%s: tensors overlap or leave gaps" % os.path.basename(path))
        expected += tensor.length
    if expected != total or os.path.getsize(path) != len(line) + total + _DIGEST_BYTES * hashed:
        raise Malformed("%s is torn: it has not the size its header names" % os.path.basename(path))
    return Packed(path, step, ps_epoch, meta, tensors, len(line), hashed)


def verify(packed: Packed) -> None:
    """Compare the whole file with its hash, if it has one.

    Raises: Malformed; OSError.
    """
    if not packed.hashed:
        return
    left = os.path.getsize(packed.path) - _DIGEST_BYTES
    digest = hashlib.sha256()
    with open(packed.path, "rb") as file:
        while left > 0:
            block = file.read(min(_BLOCK, left))
            if not block:
                break
            digest.update(block)
            left -= len(block)
        if left or file.read(_DIGEST_BYTES) != digest.digest():
            raise Malformed("%s does not match its hash" % os.path.basename(packed.path))


def read_tensor(packed: Packed, tensor: Tensor) -> bytearray:
    """Read one tensor's bytes.

    Raises: Malformed when the file ends early.
    """
    data = bytearray(tensor.length)
    with open(packed.path, "rb") as file:
        file.seek(packed.data_start + tensor.offset)
        if file.readinto(data) != tensor.length:
            raise ends_early(packed)
    return data


def read_data(packed: Packed, descriptor: int, view: memoryview, *, start: int) -> None:
    """Fill a view from the data part of an open packed file; from any thread, since the file has no position then.

    Raises: Malformed when the file ends early; OSError.
    """
    position = packed.data_start + start
    while view:
        count = os.preadv(descriptor, [view], position)
        if not count:
            raise ends_early(packed)
        view, position = view[count:], position + count


def ends_early(packed: Packed) -> Malformed:
    """Return the error of a file that has less data than its header says."""
    return Malformed("%s ends before its last tensor does" % os.path.basename(packed.path))


def check_name(name: str) -> None:
    """Refuse tensor names that could be mistaken for paths or break a line (CK5).

    Raises: Malformed.
    """
    problem: Optional[str] = None
    if not name or len(name) > 1024:
        problem = "must have 1 to 1024 characters"
    elif any(ord(character) < 32 for character in name) or name.startswith("/") or "\\" in name:
        problem = "must not hold control characters or backslashes, or begin with a slash"
    elif ".." in name.split("/"):
        problem = "must not climb with .."
    if problem is not None:
        raise Malformed("tensor name %r %s" % (name[:80], problem))
