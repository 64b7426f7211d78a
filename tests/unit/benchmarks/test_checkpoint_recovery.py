"""The benchmark of recoveries measures what it says: which bytes come from the store."""

from benchmarks.checkpoint.recovery import Plan, recover


def test_a_recovery_fetches_exactly_what_the_pod_lacks(tmp_path, roomy):
    """KT4, RS2: all, what changed, nothing, nothing from the store; beside the records, which are small."""
    size = 1024 * 1024  # smaller ones would be packed together
    plan = Plan(tensors=8, changed=2, tensor_bytes=size, bytes_per_second=1e9, latency=0.0)
    fetched = [values["fetched"] * 1e6 // size for values in recover(tmp_path, plan).values()]
    assert fetched == [8, 2, 0, 0]
