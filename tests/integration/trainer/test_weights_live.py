"""Weights on process nodes: the training reads what a hub, which is a double, gave to its init container."""

import json

from hubdouble import HubDouble, sha256

REPO = "org/model"
MODEL = bytes(range(256)) * 4096
NEWER = MODEL[::-1]
TOKEN = "hf_canary0123456789"
READS = """
import hashlib, os, sys
found = hashlib.sha256(open("/weights/model.safetensors", "rb").read()).hexdigest()
print("the training read", found, "and sees", sorted(name for name in os.listdir("/weights") if name[0] != "."))
sys.exit(found != sys.argv[1] or os.path.exists("/trainer/weights-token") or any("hf_" in v for v in os.environ.values()))
"""


def weights(**more):
    return {"huggingFace": {"repo": REPO, "mountPath": "/weights", "credentialsSecret": "hub", **more}}


def condition(trainer):
    found = trainer.status().get("conditions") or ()
    return next((each for each in found if each["type"] == "WeightsVerified"), {})


def test_members_train_with_the_files_of_one_commit_or_say_what_is_wrong_with_them(job, until):
    """EC9, HF1 to HF5, ATK12: the branch moves as soon as it was asked for; nobody but the hub sees the token."""
    hub = HubDouble()
    hub.token = TOKEN
    commit = hub.push(REPO, {"model.safetensors": MODEL, "config.json": b"{}", "run.py": b"import os"})
    hub.on_resolve = lambda: hub.push(REPO, {"model.safetensors": NEWER})
    job.world.kubectl(
        "create", "secret", "generic", "hub", "-n", job.namespace, f"--from-literal=HF_TOKEN={TOKEN}"
    )
    with hub.serving(at=job.world.hub.dup()):
        right = job.make(
            "right",
            command=["python3", "-c", READS, sha256(MODEL)],
            topology={"workers": 2},
            weights=weights(),
            cleanPodPolicy="None",
        )
        files = [{"path": "model.safetensors", "sha256": "0" * 64}]
        wrong = job.make(
            "wrong",
            command=["python3", "-c", "pass"],
            topology={"workers": 1},
            weights=weights(revision=commit, files=files),
            retryPolicy={"backoffLimit": 0},
            cleanPodPolicy="None",
        )
        status = right.wait_phase("Succeeded", 120)
        until(lambda: wrong.phase() == "Failed", 60, "the Trainer with a wrong hash", tell=wrong.status)

    assert status["weights"] == {"repo": REPO, "revision": "main", "commit": commit}
    assert condition(right)["status"] == "True"
    until(
        lambda: {"WeightsPinned", "WeightsVerified"} <= set(right.events()), 60, "Events", tell=right.events
    )
    pods = right.pods()
    assert [len(pods[name]["spec"]["initContainers"]) for name in sorted(pods)] == [3, 2]
    told = condition(wrong)
    assert (told["status"], told["reason"]) == ("False", "HashMismatch")
    assert told["message"] == (
        f"pod wrong-worker-0: model.safetensors of {REPO} at commit {commit[:12]} has SHA-256 {sha256(MODEL)}, "
        f"expected {'0' * 64}"
    )
    assert wrong.status()["message"].endswith(told["message"])

    read = [(name, "--all-containers") for name in pods] + [("wrong-worker-0", "--container=weights")]
    logs = "".join(job.world.kubectl("logs", name, "-n", job.namespace, which) for name, which in read)
    assert logs.count(f"the training read {sha256(MODEL)} and sees ['config.json', 'model.safetensors']") == 2
    objects = [right.object(), wrong.object(), job.world.get("events,pods", "-n", job.namespace)]
    assert TOKEN not in logs + json.dumps(objects)
    assert {each.token for each in hub.asked if each.host == "storage"} == {""}
