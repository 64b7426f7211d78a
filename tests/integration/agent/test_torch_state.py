"""States of torch models, sharded, through the real SDK and agent; in an interpreter that has torch, where there is one."""

from pathlib import Path

import pytest

from benchmarks.checkpoint.torchpause import interpreter
from benchmarks.child import run

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("torchstate.py")
FROZEN = 2 * (300 * 1000 + 1000) * 4
"""Bytes of the frozen layers of both shards."""


def test_sharded_state_dicts_come_back_bit_by_bit_and_frozen_layers_are_stored_once(tmp_path):
    """FZ1, RS5, AG4: bfloat16, transposed, empty and boolean tensors, an optimizer, two checkpoints of two shards."""
    python = interpreter()
    if python is None:
        pytest.skip("no torch here: run `make frameworks`, or name a Python that has it in TORCH_PYTHON")
    done = run([str(python), str(SCRIPT), str(tmp_path)], timeout=300, environment={"PYTHONPATH": str(ROOT)})
    assert done["first"] == done["bytes"]
    assert FROZEN <= done["reused"] < done["bytes"]
