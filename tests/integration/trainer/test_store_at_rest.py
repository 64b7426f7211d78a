"""Work in the store while no member runs: a janitor does it, on a real cluster."""

import subprocess
import sys

LONG = 2000


def test_a_janitor_keeps_retention_at_rest_and_deletes_all_with_the_trainer(job, until):
    """CS5, CS12, GC1, R6: a deletion in the foreground waits for the store; records stay for a late decider (DE4)."""
    digits = job.digits(epochs=LONG)
    store = digits.folder / f"store-{digits.namespace}"
    policy = {"bucket": f"file://{store}", "intervalMinutes": 0.05, "retainOnDelete": False}
    digits.patch({"checkpoint": policy})

    def committed():
        found = digits.world.get("checkpoints", "-n", digits.namespace)["items"]
        return [each for each in found if each.get("status", {}).get("state") == "Committed"]

    digits.wait_committed(60)
    access = [f"--kubeconfig={digits.world.cluster.kubeconfig}", f"--namespace={digits.namespace}"]
    asked = [sys.executable, "-m", "trainer_operator.cli.plugin.main", "checkpoint", "digits", *access]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    assert (answer.returncode, answer.stderr.count("Traceback")) == (0, 0), answer.stderr
    assert " is committed: " in answer.stdout
    assert "OnDemand" in {each["spec"]["reason"] for each in committed()}
    digits.patch({"suspend": True})
    digits.wait_phase("Suspended", 60)
    digits.patch({"checkpoint": {**policy, "maxRetention": 1}})
    until(lambda: len(committed()) == 1, 90, "retention at rest", tell=digits.pods)
    assert list(store.rglob("c0/*/*"))
    until(lambda: digits.pods() == {}, 60, "the janitor gone")
    assert digits.phase() == "Suspended"

    kubectl, place = digits.world.kubectl, ("-n", digits.namespace)
    kubectl("delete", "trainer", "digits", *place, "--cascade=foreground", "--wait=false")
    until(
        lambda: not kubectl("get", "trainers", *place, "-o", "name").strip(),
        90,
        "the end",
        tell=digits.object,
    )
    left = {path.name for path in store.rglob("*") if path.is_file()}
    assert left == {"STORE", "DECISION", "GC"}
    assert "CheckpointsDeleted" in digits.events()
