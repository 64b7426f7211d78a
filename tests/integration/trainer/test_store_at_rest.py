"""Checkpoints that users ask for and go back to, and work in the store while no member runs, on a real cluster."""

import subprocess
import sys

from integration.trainer.othercluster import import_elsewhere

LONG = 2000


def test_users_go_back_to_a_checkpoint_and_a_janitor_works_at_rest(job, until):
    """CS5, CS12, GC1, CK6, RS6, R6: a deletion in the foreground waits for the store; DE4: records stay.

    In between, another cluster imports a copy of what is stored.
    """
    digits = job.digits(epochs=LONG)
    store = digits.folder / f"store-{digits.namespace}"
    policy = {"bucket": f"file://{store}", "intervalMinutes": 0.05, "maxRetention": 50}
    digits.patch({"checkpoint": {**policy, "retainOnDelete": False}})

    def committed():
        found = digits.world.get("checkpoints", "-n", digits.namespace)["items"]
        return {
            each["metadata"]["name"]: each["status"]["step"]
            for each in found
            if each.get("status", {}).get("state") == "Committed"
        }

    def plugin(*command):
        access = [f"--kubeconfig={digits.world.cluster.kubeconfig}", f"--namespace={digits.namespace}"]
        call = [sys.executable, "-m", "trainer_operator.cli.plugin.main", *command, *access]
        answer = subprocess.run(call, capture_output=True, text=True, check=False, timeout=180)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    digits.wait_committed(60)
    asked = plugin("checkpoint", "digits").split()[0].removeprefix("checkpoint/")
    step = committed()[asked]
    digits.wait_step(step + 20)
    assert (
        plugin("restore", "digits", "--from", asked, "--yes") == f"trainer/digits goes on from step {step}\n"
    )
    until(
        lambda: digits.status()["membership"].get("restoreStep") == step and digits.phase() == "Running",
        90,
        "training from the older step",
        tell=digits.status,
    )
    assert digits.status()["lastRollback"]["to"] == step
    opened = digits.status()["timelines"]
    assert [(each["number"], each["step"]) for each in opened] == [(1, step)]

    digits.patch({"suspend": True})
    digits.wait_phase("Suspended", 60)
    digits.patch({"checkpoint": {"maxRetention": 1}})
    until(lambda: len(committed()) == 2, 90, "retention at rest", tell=digits.pods)
    assert list(store.rglob("c0/*/*"))
    until(lambda: digits.pods() == {}, 60, "the janitor gone")
    assert digits.phase() == "Suspended"

    kept = sorted(committed().values())  # the newest of the path, and the newest of what was left
    digits.world.kubectl("delete", "checkpoints", "--all", "-n", digits.namespace)
    assert plugin("import", "digits") == "trainer/digits has 2 committed checkpoints, 2 of them rebuilt\n"
    assert sorted(committed().values()) == kept
    assert digits.status()["timelines"] == opened

    def shown(objects):
        names = ("id", "step", "epoch", "timeline", "bytes", "digest", "shards", "copies", "storeId")
        return sorted([each["status"].get(name, 0) for name in names] for each in objects)

    mine = digits.object()
    manifest = {
        **{name: mine[name] for name in ("apiVersion", "kind", "spec")},
        "metadata": {"name": digits.name, "namespace": digits.namespace},
    }
    (home,) = {path.parent for path in store.rglob("ckpt")}
    objects, other, told = import_elsewhere(digits.folder / "other", home, manifest)
    assert other["metadata"]["uid"] != mine["metadata"]["uid"]
    assert [reason for reason, _ in told] == ["CheckpointsImported"]
    assert shown(objects) == shown(digits.world.get("checkpoints", "-n", digits.namespace)["items"])
    assert other["status"]["timelines"] == opened
    assert not other["metadata"].get("annotations", {}).get("trainer.operator.kubeflow.org/import")

    kubectl, place = digits.world.kubectl, ("-n", digits.namespace)
    kubectl("delete", "trainer", "digits", *place, "--cascade=foreground", "--wait=false")
    until(
        lambda: not kubectl("get", "trainers", *place, "-o", "name").strip(),
        90,
        "the end",
        tell=digits.object,
    )
    left = {path.name for path in store.rglob("*") if path.is_file()}
    assert left == {"STORE", "DECISION", "GC", "000001"}
    assert "CheckpointsDeleted" in digits.events()
