"""The layout of a state: its tensors' names, types and shapes, and two layouts compared both ways (QR4, RS5, FC06).

    registered     by the training code; else what it restored or saved first
    at a save      what is saved is compared with it, in the training process
    at the commit  the copies of a shard are compared with each other, by the digest in the first line of their indexes
    at a restore   what the checkpoint has is compared with what the training code registered before

A row of bytes may have any length: that is how texts and pickled objects are kept.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from trainer_operator.agent.backends import StoreError
from trainer_operator.agent.fingerprints import dtype_of
from trainer_operator.agent.records import Malformed

Layout = Mapping[str, Tuple[str, Tuple[int, ...]]]
"""By name, the type of the elements and the shape."""
_BYTES = "|u1"
_SHOWN = 128


class LayoutChanged(StoreError):
    """What was saved has other tensors than what is expected; the message names the first one."""


def layout_of(tensors: Iterable[Any]) -> Layout:
    """Return the layout of things that have a name, a dtype and a shape."""
    return {tensor.name: (tensor.dtype, tuple(tensor.shape)) for tensor in tensors}


def layout_of_state(state: Mapping[str, Any]) -> Layout:
    """Return the layout of what a process hands over: arrays, tensors, and bytes."""
    return {
        name: (dtype_of(value), tuple(value.shape))
        if hasattr(value, "dtype") and hasattr(value, "shape")
        else (_BYTES, (memoryview(value).nbytes,))
        for name, value in state.items()
    }


def layout_in(raw: bytes) -> Layout:
    """Return the layout of the tensors that an index lists, of whichever version.

    Raises: Malformed.
    """
    found: Dict[str, Tuple[str, Tuple[int, ...]]] = {}
    try:
        for line in raw.split(b"\n")[1:-1]:
            entry = json.loads(line)
            if "name" in entry:
                found[str(entry["name"])] = (str(entry["dtype"]), tuple(int(size) for size in entry["shape"]))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Malformed("index has a line that cannot be read: %s" % error) from error
    return found


def digest(layout: Layout) -> str:
    """Return a hash that two layouts share if they do not differ."""
    listed = [[name, *_compared(layout[name])] for name in sorted(layout)]
    return hashlib.sha256(json.dumps(listed, separators=(",", ":")).encode()).hexdigest()


def difference(found: Layout, expected: Optional[Layout]) -> str:
    """Return in words the first tensor, by name, that only one of them has or that is another one.

    It is empty when there is none, or nothing is expected.
    """
    if expected is None:
        return ""
    for name in sorted({*found, *expected}):
        ours, theirs = found.get(name), expected.get(name)
        if ours is None or theirs is None or _compared(ours) != _compared(theirs):
            return "tensor %s is %s, expected %s" % (name[:_SHOWN], _words(ours), _words(theirs))
    return ""


def _compared(tensor: Tuple[str, Tuple[int, ...]]) -> Tuple[str, Optional[List[int]]]:
    dtype, shape = tensor
    return dtype, None if dtype == _BYTES and len(shape) == 1 else list(shape)


def _words(tensor: Optional[Tuple[str, Tuple[int, ...]]]) -> str:
    if tensor is None:
        return "absent"
    dtype, shape = tensor
    return "%s of shape %s" % (dtype, list(shape))
