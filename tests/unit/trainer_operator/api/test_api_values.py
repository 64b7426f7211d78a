"""Names, buckets, quantities, times and retry policies: values derived from what users write."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from trainer_operator.api import Condition, Role, names
from trainer_operator.api.bucket import BadBucket, ClaimBucket, FileBucket, S3Bucket, parse_bucket
from trainer_operator.api.profile import (
    BackoffPolicy,
    EffectiveRetryPolicy,
    RestartPolicy,
    RetryPolicy,
    effective_retry_policy,
)
from trainer_operator.api.quantity import is_whole, parse_quantity


def test_first_pod_has_no_suffix_and_replacements_count():
    """ME4, TR24."""
    assert names.pod_name("mnist", Role.WORKER, 3) == "mnist-worker-3"
    assert names.pod_name("mnist", "ps", 0, 2) == "mnist-ps-0-a2"


def test_worker_selector_matches_worker_pods_only():
    """CR6, EC2."""
    selector = dict(part.split("=") for part in names.worker_selector("mnist").split(","))
    worker = names.pod_labels("mnist", Role.WORKER, 0)
    assert selector.items() <= worker.items()
    for other in (
        names.pod_labels("mnist", Role.PS, 0),
        names.pod_labels("mnist", Role.MASTER, 0),
        names.pod_labels("mnist2", Role.WORKER, 0),
    ):
        assert not selector.items() <= other.items()


def test_labels_tell_role_index_attempt_and_epoch():
    """TR22."""
    assert names.pod_labels("mnist", Role.PS, 1, 2, epoch=7) == {
        "trainer-name": "mnist",
        "trainer.operator.kubeflow.org/role": "ps",
        "trainer.operator.kubeflow.org/index": "1",
        "trainer.operator.kubeflow.org/attempt": "2",
        "trainer.operator.kubeflow.org/epoch": "7",
    }


def test_longest_name_counts_the_largest_index_and_attempt():
    """TR29, CR5."""
    longest = names.longest_name("m", workers=2, servers=1_000_001, masters=1)
    assert longest == "m-ps-1000000-a9999"
    assert names.longest_name("m", workers=100, servers=1, masters=1) == "m-worker-99-a9999"
    assert names.longest_name("m", workers=0, servers=0, masters=0) == "m"


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("pvc-backups", ClaimBucket("pvc-backups")),
        ("s3://training", S3Bucket("training", "")),
        ("s3://training/a/b/", S3Bucket("training", "a/b")),
        ("file:///srv/checkpoints/", FileBucket("/srv/checkpoints")),
    ],
)
def test_bucket_is_read(text, bucket):
    """BK."""
    assert parse_bucket(text) == bucket


@pytest.mark.parametrize(
    "text", ["", "ns/claim", "s3://b/../c", "gs://bucket", "file:///a/./b", "claim\n", "-x"]
)
def test_bad_bucket_is_refused_with_what_is_allowed(text):
    """TN2, TN10."""
    with pytest.raises(BadBucket, match=r"is not allowed: give the name of a PersistentVolumeClaim"):
        parse_bucket(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (20, Decimal(20)),
        ("500m", Decimal("0.5")),
        ("40Gi", Decimal(40 * 2**30)),
        ("1.5k", Decimal(1500)),
        ("2e3", Decimal(2000)),
        (".5", Decimal("0.5")),
        ("1E", Decimal(10**18)),
    ],
)
def test_quantity_has_its_exact_value(text, value):
    """ATK4."""
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "GiB", "1GiB", "NaN", "1" * 33, -1])
def test_what_is_no_quantity_is_refused(text):
    """ATK4."""
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


def test_devices_are_whole():
    """ATK4."""
    assert is_whole("8")
    assert is_whole("1000m")
    assert not is_whole("500m")


def test_retry_policy_is_decided_field_by_field():
    """TR33, RC: own, then profile, then default."""
    own = RetryPolicy(backoff_limit=0, backoff=BackoffPolicy(cap_seconds=60))
    profile = RetryPolicy(
        backoff_limit=9,
        restart_policy=RestartPolicy.ALWAYS,
        backoff=BackoffPolicy(base_seconds=5, cap_seconds=10),
    )
    assert effective_retry_policy(own, profile) == EffectiveRetryPolicy(
        backoff_limit=0, restart_policy=RestartPolicy.ALWAYS, base_seconds=5, cap_seconds=60
    )


def test_retry_cap_wins_over_a_longer_base_of_the_profile():
    """RC1: each half was valid alone."""
    own = RetryPolicy(backoff=BackoffPolicy(cap_seconds=3))
    profile = RetryPolicy(backoff=BackoffPolicy(base_seconds=30))
    policy = effective_retry_policy(own, profile)
    assert (policy.base_seconds, policy.cap_seconds) == (3, 3)


def test_times_are_written_as_the_api_server_does():
    """CR7."""
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Running",
        "message": "",
        "lastTransitionTime": "x",
    }
    whole = Condition.read({**condition, "lastTransitionTime": "2026-12-02T08:00:00Z"})
    parts = Condition.read({**condition, "lastTransitionTime": "2026-12-02T10:00:00.25+02:00"})
    assert whole.last_transition_time == datetime(2026, 12, 2, 8, tzinfo=UTC)
    assert whole.dump()["lastTransitionTime"] == "2026-12-02T08:00:00Z"
    assert parts.dump()["lastTransitionTime"] == "2026-12-02T08:00:00.250000Z"
