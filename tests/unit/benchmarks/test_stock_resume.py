"""The comparison has the measurement of checkpoints as a row of its own, for who has checkpoints."""

from types import SimpleNamespace

from benchmarks.checkpoint.recovery import Plan
from benchmarks.stock.plan import ARMS, FULL
from benchmarks.stock.scenario import Room
from benchmarks.stock.scenarios.resume import Resume


async def test_a_resume_is_measured_in_full_and_incrementally(tmp_path, roomy):
    """KT4, RS2."""
    size = 2 * 1024 * 1024  # smaller ones are packed together
    plan = Plan(tensors=8, changed=2, tensor_bytes=size, bytes_per_second=1e9, latency=0.0)
    scenario = Resume(plan)
    outcome = await scenario.run(Room(SimpleNamespace(folder=tmp_path), None))
    assert set(outcome.figures) == {column.key for column in scenario.columns}
    assert outcome.figures["full_fetched"] * 1e6 // size == 8
    assert outcome.figures["incremental_fetched"] * 1e6 // size == 2
    assert list(tmp_path.iterdir()) == []


def test_who_offers_no_checkpoints_is_named_and_has_no_figure():
    group = FULL.group("resume")
    assert {arm for arm in ARMS if arm.startswith(("stock", "v2"))} <= set(group.skipped)
    assert "ours" not in group.skipped
