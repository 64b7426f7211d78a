"""Whether a pod is started to verify at rest is the user's choice; the store's other work is done in any case."""

import json
from datetime import UTC, datetime, timedelta

from runtime.clock import format_time

LONG = 2000


def test_nothing_is_started_to_verify_at_rest_where_the_user_wants_that_and_collection_goes_on(job, until):
    """PB1, GC1: no janitor for what is long due, one for what retention deletes, which reads nothing else."""
    digits = job.digits(epochs=LONG)
    digits.patch({"checkpoint": {"maxRetention": 50, "verifyAtRest": False}})
    until(lambda: len(committed(digits)) >= 2, 120, "two checkpoints", tell=digits.status)
    digits.patch({"suspend": True})
    digits.wait_phase("Suspended", 60)
    until(lambda: digits.pods() == {}, 60, "no pods", tell=digits.pods)

    mark, passes = digits.world.audit.mark(), prober_passes(digits)
    due = format_time(datetime.now(UTC) - timedelta(days=3))
    for name in committed(digits):
        read_last(digits, name, due)
    until(lambda: prober_passes(digits) > passes, 60, "a pass of the prober")
    assert janitors(digits, mark) == 0

    digits.patch({"checkpoint": {"maxRetention": 1}})
    until(lambda: len(committed(digits)) == 1, 90, "retention at rest", tell=digits.pods)
    until(lambda: digits.pods() == {}, 60, "the janitor gone", tell=digits.pods)
    collectors = janitors(digits, mark)
    assert collectors
    assert list(committed(digits).values()) == [due]

    digits.patch({"checkpoint": {"verifyAtRest": True}})
    until(lambda: due not in committed(digits).values(), 90, "a verification", tell=digits.pods)
    assert janitors(digits, mark) > collectors


def committed(job):
    """Return when each committed checkpoint was read last."""
    found = job.world.get("checkpoints", "-n", job.namespace)["items"]
    states = {each["metadata"]["name"]: each.get("status", {}) for each in found}
    return {
        name: status["lastVerified"]
        for name, status in states.items()
        if status.get("state") == "Committed" and not status.get("markedAt")
    }


def read_last(job, name, when):
    """Have a checkpoint say that it was read in full then."""
    status = json.dumps({"status": {"verified": "Full", "lastVerified": when}})
    place = ("-n", job.namespace, "--subresource=status", "--type=merge")
    job.world.kubectl("patch", "checkpoint", name, *place, "-p", status)


def janitors(job, mark):
    """Return how many were created, as the API server tells it."""
    return sum(
        event.verb == "create" and event.request_uri.partition("?")[0].endswith(f"/{job.namespace}/pods")
        for event in job.world.audit.since(mark)
    )


def prober_passes(job):
    """Return how often the leader's prober looked at any Trainer."""
    lines = (job.world.leader().page("/metrics") or "").splitlines()
    kept = (line for line in lines if line.startswith("controller_runtime_reconcile_total{"))
    return sum(float(line.split()[-1]) for line in kept if 'controller="prober"' in line)
