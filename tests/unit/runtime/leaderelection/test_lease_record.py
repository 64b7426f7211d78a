"""The Lease object, read as anybody may have left it."""

from datetime import UTC, datetime

import pytest

from runtime.leaderelection.record import Lease, lease_from_object, lease_to_object

MOMENT = datetime(2026, 12, 2, 8, 0, 0, 123456, tzinfo=UTC)


def test_times_are_written_in_utc_with_microseconds(monkeypatch):
    """L4, RT32: whatever the machine's time zone."""
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        lease = Lease("me", 15, 0).stamped(MOMENT)
        spec = lease_to_object(lease, namespace="ns", name="lease")["spec"]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert spec == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "2026-12-02T08:00:00.123456Z",
        "renewTime": "2026-12-02T08:00:00.123456Z",
    }


def test_a_lease_survives_writing_and_reading():
    """L4."""
    lease = Lease("me", 15, 3).stamped(MOMENT)
    assert lease_from_object(lease_to_object(lease, namespace="ns", name="lease")) == lease


@pytest.mark.parametrize("text", ["2026-12-02T08:00:00Z", "2026-12-02T03:00:00-05:00"])
def test_times_without_a_fraction_are_read(text):
    """L4."""
    lease = lease_from_object({"spec": {"holderIdentity": "go", "renewTime": text}})
    assert lease.renewed == datetime(2026, 12, 2, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"spec": None},
        {"spec": []},
        {
            "metadata": None,
            "spec": {"holderIdentity": None, "leaseDurationSeconds": "15", "renewTime": "soon"},
        },
        {"spec": {"leaseDurationSeconds": -4, "leaseTransitions": True, "acquireTime": 7}},
    ],
)
def test_malformed_fields_count_as_empty(obj):
    """L4: an object that anybody may edit must not end the elector."""
    assert lease_from_object(obj) == Lease()


def test_what_we_do_not_know_is_written_back_and_managed_fields_are_not():
    """L4, R5."""
    origin = {
        "metadata": {"name": "x", "labels": {"a": "b"}, "resourceVersion": "7", "managedFields": [{}]},
        "spec": {"holderIdentity": "old", "strategy": "OldestEmulationVersion"},
    }
    body = lease_to_object(lease_from_object(origin), namespace="ns", name="lease")
    assert body["metadata"] == {
        "name": "lease",
        "namespace": "ns",
        "labels": {"a": "b"},
        "resourceVersion": "7",
    }
    assert body["spec"]["strategy"] == "OldestEmulationVersion"
    assert origin["metadata"]["managedFields"] == [{}]


def test_a_released_lease_leaves_the_holder_out():
    """L7: the API does not take an empty holder."""
    lease = lease_from_object({"spec": {"holderIdentity": "me"}})
    released = Lease("", 1.0, origin=lease.origin)
    assert "holderIdentity" not in lease_to_object(released, namespace="ns", name="lease")["spec"]
