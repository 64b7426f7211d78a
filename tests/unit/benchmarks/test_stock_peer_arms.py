"""Peers run with what they publish: only addresses are ours, and limits where an arm says that it is tuned."""

import pytest

from benchmarks.stock.arm import container
from benchmarks.stock.arms import trainer_v2, training_operator
from benchmarks.stock.gooperator import GoOperator
from benchmarks.stock.peers import JOBSET, TRAINER

TRAINER_PUBLISHED = {
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081", "readinessEndpointName": "readyz"},
    "metrics": {"bindAddress": ":8443", "secureServing": True},
    "webhook": {"port": 9443, "host": ""},
    "leaderElection": {"leaderElect": True, "leaseDuration": "15s", "resourceNamespace": ""},
    "controller": {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 5, "TrainingRuntime": 1}},
    "clientConnection": {"qps": 50, "burst": 100},
    "statusServer": {"port": 10443, "qps": 5, "burst": 10},
}
JOBSET_PUBLISHED = {
    "kind": "Configuration",
    "leaderElection": {"leaderElect": True},
    "internalCertManagement": {"enable": True},
}


def operator(peer):
    return GoOperator(peer, ports=[1, 2, 3, 4], namespace="peer", secret="certificates", controller="c")


def test_defaults_of_trainer_keep_its_limits_and_its_election():
    config = trainer_v2.trainer_config(TRAINER_PUBLISHED, operator=operator(TRAINER), is_tuned=False)
    assert config["clientConnection"] == {"qps": 50, "burst": 100}
    assert config["controller"] == TRAINER_PUBLISHED["controller"]
    assert config["leaderElection"]["leaderElect"] is True
    assert config["webhook"]["port"] == 1
    assert config["health"] == {"healthProbeBindAddress": "127.0.0.1:2", "readinessEndpointName": "readyz"}
    assert config["metrics"] == {"bindAddress": "127.0.0.1:3", "secureServing": True}
    assert config["statusServer"]["port"] == 4


def test_tuned_trainer_has_no_limit_that_holds_it_up():
    config = trainer_v2.trainer_config(TRAINER_PUBLISHED, operator=operator(TRAINER), is_tuned=True)
    assert config["clientConnection"] == {"qps": 10000, "burst": 10000}
    assert config["controller"]["groupKindConcurrency"] == {
        "TrainJob.trainer.kubeflow.org": 16,
        "TrainingRuntime": 1,
    }


@pytest.mark.parametrize(("is_tuned", "limits"), [(False, None), (True, {"qps": 10000, "burst": 10000})])
def test_jobset_gets_limits_of_ours_only_when_tuned(is_tuned, limits):
    config = trainer_v2.jobset_config(JOBSET_PUBLISHED, operator=operator(JOBSET), is_tuned=is_tuned)
    assert config.get("clientConnection") == limits
    assert config["internalCertManagement"] == {"enable": True}
    assert config["leaderElection"] == {"leaderElect": True, "resourceNamespace": "jobset-system"}


@pytest.mark.parametrize(("pods", "roles"), [(4, {"Master": 1, "Worker": 3}), (1, {"Master": 1})])
def test_pytorch_job_has_as_many_pods_as_asked_for(pods, roles):
    job = training_operator.defaults().job("job", pods=pods)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: role["replicas"] for name, role in replicas.items()} == roles
    for role in replicas.values():
        assert role["restartPolicy"] == "ExitCode"
        assert role["template"]["spec"]["containers"] == [container("pytorch")]


def test_train_job_asks_for_the_same_container_as_all_arms():
    trainer = trainer_v2.defaults().job("job", pods=4)["spec"]["trainer"]
    wanted = container("node")
    assert (trainer["numNodes"], trainer["image"], trainer["command"], trainer["resourcesPerNode"]) == (
        4,
        wanted["image"],
        wanted["command"],
        wanted["resources"],
    )


def test_arms_name_the_versions_that_are_pinned():
    assert training_operator.tuned().versions == {"training-operator": "v1.9.4"}
    assert trainer_v2.tuned().versions == {"trainer": "v2.3.0", "jobset": "v0.12.0"}
