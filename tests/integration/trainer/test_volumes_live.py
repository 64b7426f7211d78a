"""Members' own volumes on the real cluster, under exactly the shipped role."""


def claims(job):
    found = job.world.get("pvc", "-n", job.namespace, "-l", f"trainer-name={job.name}")["items"]
    return {claim["metadata"]["name"] for claim in found}


def is_running(job, pod):
    return (job.pods().get(pod) or {"status": {}})["status"].get("phase") == "Running"


def test_a_new_pod_gets_a_fresh_claim_and_the_old_one_goes(job, until):
    """ND3, RB1: FreshVolume; a claim of each attempt, there before its pod, deleted once its pod is gone."""
    training = job.make(
        "volumes",
        command=["sh", "-c", "exec sleep 600"],
        topology={"workers": 1, "storage": {"size": "1Mi"}},
    )
    until(lambda: is_running(training, "volumes-worker-0"), 60, "the pod runs", tell=training.status)
    assert claims(training) == {"volumes-worker-0"}
    job.world.kubectl("delete", "pod", "volumes-worker-0", "-n", job.namespace, "--wait=false")
    until(lambda: is_running(training, "volumes-worker-0-a1"), 60, "its successor runs", tell=training.status)
    until(lambda: claims(training) == {"volumes-worker-0-a1"}, 60, "only the new claim", tell=training.status)
