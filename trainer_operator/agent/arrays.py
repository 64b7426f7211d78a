"""Arrays and tensors as bytes and back, with numpy or torch where the process has them (AG4)."""

from __future__ import annotations

import sys
from typing import Any, List, Mapping, Tuple

from trainer_operator.agent.fingerprints import dtype_of, is_torch
from trainer_operator.agent.packed import Source


def sources(state: Mapping[str, Any]) -> List[Source]:
    """Return all tensors of a state with their content."""
    return [source(name, value) for name, value in state.items()]


def source(name: str, value: Any) -> Source:
    """Return a tensor with its content; what lies on a device is read from it here."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        view = memoryview(value).cast("B")
        return Source(name, "|u1", (view.nbytes,), view)
    shape = tuple(value.shape)
    if is_torch(value):
        octets = value.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy()
        return Source(name, dtype_of(value), shape, memoryview(octets))
    import numpy as np

    flat: Any = np.ascontiguousarray(value)
    return Source(name, flat.dtype.str, shape, memoryview(flat.reshape(-1).view("u1")))


def array(data: bytearray, dtype: str, shape: Tuple[int, ...]) -> Any:
    """Return a numpy array over these bytes, or the bytes where there is no numpy."""
    try:
        import numpy as np
    except ImportError:
        return data
    if dtype == "bfloat16":  # numpy has no such type: its bits, which torch takes with .view(torch.bfloat16)
        dtype = "<i2"
    return np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape)
