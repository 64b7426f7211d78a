"""The SDK without an agent: every call works and does nothing."""

import sys

import pytest

from trainer_operator.agent import ring
from trainer_operator.agent.sdk.trainer_sdk import Job, RestoreFailed, ServersLost


def test_a_loop_runs_without_an_agent():
    """AG4: the same program on a laptop."""
    job = Job({})
    assert (job.role, job.rank, job.world, job.restore_step, job.members) == ("worker", 0, 1, 0, ())
    assert job.restore() is None
    for n in range(1, 4):
        job.pause_point()
        job.step(n, samples=n, metrics={"loss": 1.0})
        assert not job.should_checkpoint(n)
        job.save(n, {"w": b"abc"})
        job.snapshot(n, {"w": b"abc"})
    job.phase("eval")
    job.epoch_done(1)
    job.done()
    assert job.ps_update() is None
    assert job.wait_ps(timeout=0) is None
    with pytest.raises(ServersLost):
        job.wait_ps()


def test_an_agent_that_is_not_there_is_said_once(tmp_path, capsys):
    """AG4: fire and forget."""
    job = Job({"TRAINER_AGENT_SOCK": str(tmp_path / "absent.sock")})
    job.step(1)
    assert capsys.readouterr().err.count("no agent at") == 1


def test_members_are_ordered_by_rank():
    """ME2."""
    members = (
        '[{"role":"worker","index":5,"rank":1,"address":"a","port":1},'
        '{"role":"ps","index":0,"rank":0,"address":"b","port":2},'
        '{"role":"master","index":0,"rank":0,"address":"c","port":3}]'
    )
    job = Job({"TRAINER_MEMBERS": members, "TRAINER_RANK": "1", "TRAINER_WORLD_SIZE": "2"})
    assert [member.address for member in job.workers] == ["c", "a"]
    assert [member.address for member in job.servers] == ["b"]


def test_snapshots_come_back_as_arrays(tmp_path):
    """PSR1: dtype and shape survive, scalars and empty arrays too."""
    import numpy as np

    job = Job({"TRAINER_RING_DIR": str(tmp_path), "TRAINER_PS_EPOCH": "1"})
    state = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "scalar": np.array(7, dtype=np.int64),
        "none": np.zeros((0, 3)),
        "flag": np.array([True, False]),
    }
    job.snapshot(20, state, {"seed": 7})
    restored = Job(
        {"TRAINER_RING_DIR": str(tmp_path), "TRAINER_RESTORE_STEP": "20", "TRAINER_RESTORE_RING": "1"}
    ).restore()
    assert (restored.step, restored.meta) == (20, {"seed": 7})
    for name, value in state.items():
        assert restored.state[name].dtype == value.dtype
        assert restored.state[name].shape == value.shape
        assert np.array_equal(restored.state[name], value)
    restored.state["w"][0, 0] = 9  # writable
    assert ring.steps(str(tmp_path)) == [20]


def test_a_step_that_nobody_has_is_an_error(tmp_path):
    """PSR4: never silently from zero."""
    job = Job({"TRAINER_RING_DIR": str(tmp_path), "TRAINER_RESTORE_STEP": "20", "TRAINER_RESTORE_RING": "1"})
    with pytest.raises(RestoreFailed, match="neither the ring nor the store has step 20"):
        job.restore()


def test_the_sdk_needs_no_numpy():
    """AG3: standard library only."""
    assert "trainer_operator.agent.sdk.trainer_sdk" in sys.modules
    source = sys.modules["trainer_operator.agent.sdk.trainer_sdk"].__dict__
    assert "np" not in source
