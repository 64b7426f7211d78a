"""A real HorizontalPodAutoscaler scales a Trainer through its scale subresource; the metrics API is a double."""

from integration.trainer.metricsdouble import MetricsDouble

LONG = 2000


def test_an_autoscaler_grows_and_shrinks_the_workers_without_losing_a_step(job, until):
    """CR6, ME6, ME7: kube-controller-manager reads `status.selector`, computes, and writes `/scale`."""
    tls = job.world.folder / "tls"
    digits = job.digits(
        epochs=LONG,
        resources={"requests": {"cpu": "100m"}},
        elastic={"minWorkers": 2, "maxWorkers": 4},
    )
    digits.wait_committed()
    with MetricsDouble(job.world.kubectl, tls / "tls.crt", tls / "tls.key") as metrics:
        metrics.cpu = 100
        job.world.apply(autoscaler(job.namespace))
        until(lambda: workers(digits) == "worker:0-3", 150, "four workers", tell=digits.status)
        digits.wait_trains_on()
        metrics.cpu = 10
        until(lambda: workers(digits) == "worker:0-1", 150, "two workers", tell=digits.status)
        status = digits.wait_trains_on()
        job.world.kubectl("delete", "hpa", "digits", "-n", job.namespace)
    assert (status.get("rollbacks", 0), status["failures"], status["disruptions"]) == (0, 0, 0)


def workers(job):
    """The members of the epoch that trains, or nothing while none does."""
    membership = job.status()["membership"]
    return membership["members"] if membership["phase"] == "Active" else ""


def autoscaler(namespace):
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": {
            "minReplicas": 2,
            "maxReplicas": 4,
            "scaleTargetRef": {
                "apiVersion": "trainer.operator.kubeflow.org/v1alpha1",
                "kind": "Trainer",
                "name": "digits",
            },
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }
