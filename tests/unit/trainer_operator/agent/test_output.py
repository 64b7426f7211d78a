"""Steps of code without the SDK: what counts as one, however the output is cut."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.agent.output import ProgressFile, StepReader


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("step 12 loss 0.3", 12),
        ("step=12", 12),
        ("Step: 12/500", 12),
        ("Step [12/500]", 12),
        ("global_step=12", 12),
        ('{"loss": 0.3, "step": 12}', 12),
        ("INFO:root:finished step   12", 12),
        ("step 3 of 4; step 12", 12),
        ("epoch 12", None),
        ("steps follow", None),
        ("step 1234567890123456", None),
        ("max_steps=9 max_step=9 total step: 9", None),
        ("step 12 of max_step=500, time/step: 3", 12),
        ("eval step 9", None),
        ("lr per step: 0.5", None),
        ("step: 0.5", None),
        ("step 12.", 12),
        ("", None),
    ],
)
def test_a_step_is_found_in_the_usual_forms(line, step):
    """AG5."""
    assert StepReader().feed(f"{line}\n".encode()) == step


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8), st.data())
def test_the_last_step_is_the_same_wherever_the_output_is_cut(steps, data):
    """AG5: half a number is never taken for one."""
    text = "".join(f"step {step}{data.draw(st.sampled_from([chr(10), chr(13)]))}" for step in steps).encode()
    cut = data.draw(st.integers(0, len(text)))
    reader = StepReader()
    found = [step for piece in (text[:cut], text[cut:]) if (step := reader.feed(piece)) is not None]
    assert set(found) <= set(steps)
    assert found[-1] == steps[-1]


def test_a_line_without_end_takes_no_memory():
    """AG5."""
    reader = StepReader()
    for _ in range(100):
        assert reader.feed(b"x" * 65536) is None
    assert len(reader._rest) <= 4096
    assert reader.feed(b"\nstep 7\n") == 7


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_is_printed_is_read_without_harm(first, second):
    """AG5: hostile output costs nothing but itself."""
    reader = StepReader()
    for piece in (first, b"step step step" * 400, second, b"\n"):
        found = reader.feed(piece)
        assert found is None or 0 <= found < 10**15
    assert reader.feed(b"step 3\n") == 3


def test_a_file_tells_its_number_once_for_each_write(tmp_path):
    """AG5."""
    file = ProgressFile(str(tmp_path / "progress"))
    file.clear()
    assert file.read() is None
    (tmp_path / "progress").write_text("41\n")
    assert (file.read(), file.read()) == (41, None)
    (tmp_path / "progress").write_text("42")
    os.utime(tmp_path / "progress", (1, 1))
    assert file.read() == 42


@pytest.mark.parametrize("content", ["", "soon", "4 2", "-1", "9" * 70])
def test_a_file_that_holds_anything_else_is_no_step(tmp_path, content):
    """AG5."""
    file = ProgressFile(str(tmp_path / "progress"))
    (tmp_path / "progress").write_text(content)
    assert file.read() is None


def test_what_is_no_plain_file_is_left_alone(tmp_path):
    """AG5: the code may put anything there; a pipe without a writer would stop the agent."""
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    os.mkfifo(path)
    assert file.read() is None
    path.unlink()
    (tmp_path / "other").write_text("7")
    path.symlink_to(tmp_path / "other")
    assert file.read() is None
    path.unlink()
    path.mkdir()
    file.clear()
    assert file.read() is None


def test_what_an_earlier_process_wrote_does_not_count(tmp_path):
    """AG5, TX7."""
    (tmp_path / "progress").write_text("41")
    file = ProgressFile(str(tmp_path / "progress"))
    file.clear()
    assert file.read() is None
    assert not (tmp_path / "progress").exists()
