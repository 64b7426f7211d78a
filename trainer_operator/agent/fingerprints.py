"""Which tensors a process need not hand over again, since nobody can have changed them since the base (FZ1, FZ2).

    torch tensor     that requires no gradient, lies in the same storage, with the same version counter
    numpy array      that is read-only, as is all that it is a view of (`array.setflags(write=False)`)
    anything else    is handed over; the agent then finds by its hash that the store has it

An address alone says nothing: memory that was freed is given out again. So the owner of the memory is held weakly, and
counts only while it lives. A few elements are compared as well, because kernels that write through raw pointers leave
the version counter as it was. What gets past both is found by the audit: every tenth time all content is handed over,
and a tensor that is found to differ is never taken for unchanged again in this process.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Hashable, Iterable, List, Mapping, Optional, Set

from trainer_operator.agent.packed import Source

AUDIT_EVERY = 10
_SAMPLES = 64
_REMEMBERED = 3
_TORCH_TYPES = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}


@dataclass(frozen=True)
class Fingerprint:
    """What is the same as long as nobody writes to a tensor."""

    key: Hashable
    lives: Callable[[], bool]
    """Whether the memory was not freed since, so that the key still means the same."""


class Memory:
    """The fingerprints of what this process handed over last, by checkpoint. Use it from one thread."""

    def __init__(self) -> None:
        self._saved: Dict[str, Dict[str, Fingerprint]] = {}
        self._distrusted: Set[str] = set()
        self._count = 0

    def distrust(self, names: Iterable[str]) -> None:
        """Never take these tensors for unchanged again."""
        self._distrusted.update(names)

    def sources(
        self,
        state: Mapping[str, Any],
        *,
        ckpt: str,
        part: str,
        base: str,
        whole: Callable[[str, Any], Source],
    ) -> List[Source]:
        """Return what to hand over: of tensors that did not change since the base the name only, but in audits all.

        `part` says which shard and copies these are; another part of the base holds other content. `whole` makes the
        source of a tensor with its content.
        """
        self._count += 1
        audits = self._count % AUDIT_EVERY == 0
        before = self._saved.get(_key(base, part), {})
        now: Dict[str, Fingerprint] = {}
        found: List[Source] = []
        for name, value in state.items():
            mark = None if name in self._distrusted else fingerprint(value)
            if mark is not None:
                now[name] = mark
            old = before.get(name)
            unchanged = mark is not None and old is not None and old.key == mark.key and old.lives()
            if unchanged and not audits:
                found.append(Source(name, dtype_of(value), tuple(value.shape), memoryview(b""), True))
            else:
                found.append(replace(whole(name, value), unchanged=unchanged))
        self._saved[_key(ckpt, part)] = now
        while len(self._saved) > _REMEMBERED:
            del self._saved[next(iter(self._saved))]
        return found


def fingerprint(value: Any) -> Optional[Fingerprint]:
    """Return the fingerprint of a tensor; None for one that may change without a trace, and for an empty one."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape") or 0 in tuple(value.shape):
        return None
    return _of_torch(value) if is_torch(value) else _of_numpy(value)


def is_torch(value: Any) -> bool:
    """Whether it is a torch tensor, parameters and other subclasses included."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(value).__mro__)


def dtype_of(value: Any) -> str:
    """Return the name of the type of a tensor's elements as an index has it."""
    if not is_torch(value):
        return str(value.dtype.str)
    name = str(value.dtype).rpartition(".")[2]
    return _TORCH_TYPES.get(name, name)  # numpy has no bfloat16


def _of_torch(tensor: Any) -> Optional[Fingerprint]:
    try:
        if tensor.requires_grad or not tensor.is_contiguous():
            return None
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        held = importlib.import_module("torch.multiprocessing.reductions").StorageWeakRef(storage)
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, flat.shape[0] // _SAMPLES)].cpu().contiguous()
        key = (held.cdata, tensor.data_ptr(), tensor._version, tuple(tensor.shape), str(tensor.dtype))
        return Fingerprint((*key, str(tensor.device), str(sample.tolist())), lambda: not held.expired())
    except (AttributeError, ImportError, RuntimeError, TypeError, NotImplementedError):
        return None  # inference tensors have no version counter, meta and sparse ones no storage


def _of_numpy(array: Any) -> Optional[Fingerprint]:
    np = sys.modules.get("numpy")  # not imported: who has such an array has it
    if np is None or not isinstance(array, np.ndarray) or array.dtype.hasobject:
        return None
    owner: Any = array
    while True:
        if owner.flags.writeable:
            return None
        if not isinstance(owner.base, np.ndarray):
            break
        owner = owner.base
    if not (owner.base is None or isinstance(owner.base, bytes)):  # somebody else's memory
        return None
    held = weakref.ref(owner)
    interface = array.__array_interface__
    sample = array.ravel()[:: max(1, array.size // _SAMPLES)].tobytes() if array.flags.c_contiguous else b""
    key = (id(owner), interface["data"][0], array.shape, array.strides, array.dtype.str, sample)
    return Fingerprint(key, lambda: held() is not None)


def _key(ckpt: str, part: str) -> str:
    return "%s %s" % (ckpt, part)
