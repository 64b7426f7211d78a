"""The pod of a member: what the user asked for, the agent around it, and what is ours alone."""

import json
from pathlib import Path

import pytest

from simulation.cluster import trainer as plain_trainer
from simulation.views import OTHER, WORKER, with_spec
from trainer_operator.api.profile import ProfileSnapshot, TrainingProfileSpec
from trainer_operator.api.status import MembershipStatus, TrainerStatus
from trainer_operator.api.trainer import Scheduling, Trainer
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.pods import pod_manifest, store_directory
from trainer_operator.trainer.views import Settings

GOLDEN = Path(__file__).parents[3] / "golden"
SETTINGS = Settings(
    operator_image="operator:1",
    agent_urls=("https://10.0.0.1:9443", "https://10.0.0.2:9443"),
    agent_ca="PEM",
)
PROFILE = {
    "nodeSelector": {"pool": "gpu", "zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "runtimeConfig": {"secret": "shared-config", "mountPath": "/etc/secrets"},
    "envVars": [{"name": "LEVEL", "value": "profile"}, {"name": "FROM_PROFILE", "value": "yes"}],
}
FULL = {
    "epochs": 3,
    "image": "image:1",
    "command": ["python3", "train.py"],
    "args": ["--fast"],
    "workingDir": "/app",
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "LEVEL", "value": "trainer"}, {"name": "FROM_TRAINER", "value": "yes"}],
    "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}},
    "scheduling": {"schedulerName": "gang"},
    "checkpoint": {"bucket": "pvc-backups", "prefix": "team"},
    "topology": {
        "workers": 2,
        "parameterServers": 1,
        "roles": {
            "worker": {
                "env": [{"name": "LEVEL", "value": "role"}],
                "nodeSelector": {"zone": "b"},
                "tolerations": [{"key": "spot", "operator": "Exists"}],
            },
            "ps": {"image": "ps:1", "command": ["serve"], "resources": {"requests": {"cpu": "4"}}},
        },
        "podSpec": {
            "ports": 100,
            "labels": {"team": "vision"},
            "annotations": {"note": "kept"},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
            "serviceAccountName": "trainer",
            "priorityClassName": "batch",
            "shmSize": "1Gi",
            "securityContext": {"runAsUser": 1000, "readOnlyRootFilesystem": True},
            "terminationGracePeriodSeconds": 45,
        },
    },
}
MINIMAL = {"epochs": 1, "image": "image:1", "command": ["train"]}


def trainer(spec=None, *, profile=None, epoch=4):
    made = Trainer.read(
        {
            "metadata": {"name": "t", "namespace": "ns", "uid": "0123456789abcdef"},
            "spec": spec or MINIMAL,
        }
    )
    snapshot = None
    if profile is not None:
        snapshot = ProfileSnapshot(name="shared", spec=TrainingProfileSpec.read(profile))
    status = TrainerStatus(membership=MembershipStatus(epoch=epoch), profile_snapshot=snapshot)
    return made.model_copy(update={"status": status})


def manifest(spec=None, *, member=WORKER, attempt=0, profile=None, settings=SETTINGS):
    return pod_manifest(trainer(spec, profile=profile), member, attempt, settings)


def with_pod_spec(**changes):
    return {**MINIMAL, "topology": {"podSpec": changes}}


def container(made):
    (only,) = made["spec"]["containers"]
    return only


def environment(made):
    return {entry["name"]: entry for entry in container(made)["env"]}


@pytest.mark.parametrize(
    ("file", "made"),
    [
        ("trainer_pod_full.json", lambda: manifest(FULL, member=OTHER, attempt=2, profile=PROFILE)),
        ("trainer_pod_minimal.json", manifest),
    ],
)
def test_the_manifest_is_the_one_on_record(file, made):
    """AG1, AG3, AG9: a change of any field shows in review."""
    assert made() == json.loads((GOLDEN / file).read_text())


def test_the_same_member_and_attempt_give_the_same_manifest():
    """R1, TR24."""
    assert manifest(FULL, profile=PROFILE) == manifest(FULL, profile=PROFILE)


@pytest.mark.parametrize(
    ("member", "attempt", "name"),
    [
        (WORKER, 0, "t-worker-0"),
        (WORKER, 1, "t-worker-0-a1"),
        (MemberId("ps", 3), 12, "t-ps-3-a12"),
        (MemberId("master", 0), 0, "t-master-0"),
    ],
)
def test_the_name_is_a_function_of_member_and_attempt(member, attempt, name):
    """ME4, TR24."""
    assert manifest(member=member, attempt=attempt)["metadata"]["name"] == name


def test_our_labels_win_over_a_users():
    """TR23: even when admission let them pass."""
    made = trainer(FULL)
    mine = {"trainer-name": "other", "trainer.operator.kubeflow.org/index": "99", "team": "vision"}
    pod_spec = made.spec.topology.pod_spec.model_copy(update={"labels": mine})
    topology = made.spec.topology.model_copy(update={"pod_spec": pod_spec})
    made = made.model_copy(update={"spec": made.spec.model_copy(update={"topology": topology})})
    labels = pod_manifest(made, OTHER, 2, SETTINGS)["metadata"]["labels"]
    prefix = "trainer.operator.kubeflow.org/"
    assert labels == {
        "team": "vision",
        "trainer-name": "t",
        f"{prefix}role": "worker",
        f"{prefix}index": "1",
        f"{prefix}attempt": "2",
        f"{prefix}epoch": "4",
    }


def test_the_trainer_owns_the_pod():
    """TR22."""
    (owner,) = manifest()["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["kind"]) == ("0123456789abcdef", True, "Trainer")


def test_the_most_specific_environment_wins():
    """TN7: profile, then Trainer, then role."""
    worker = environment(manifest(FULL, profile=PROFILE))
    server = environment(manifest(FULL, member=MemberId("ps", 0), profile=PROFILE))
    assert worker["LEVEL"]["value"] == "role"
    assert server["LEVEL"]["value"] == "trainer"
    assert worker["FROM_PROFILE"]["value"] == worker["FROM_TRAINER"]["value"] == "yes"


def test_our_environment_wins_over_everybodys():
    """PS4, ATK19: even when admission let them pass."""
    made = trainer(FULL, profile=PROFILE)
    stolen = tuple(
        made.spec.env[0].model_copy(update={"name": name, "value": "stolen"})
        for name in ("TRAINER_UID", "TRAINER_POD_UID", "TRAINER_TOKEN_FILE", "TRAINER_OPERATOR_URLS")
    )
    made = made.model_copy(update={"spec": made.spec.model_copy(update={"env": stolen})})
    found = environment(pod_manifest(made, WORKER, 0, SETTINGS))
    assert found["TRAINER_UID"]["value"] == "0123456789abcdef"
    assert found["TRAINER_POD_UID"] == {
        "name": "TRAINER_POD_UID",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
    }
    assert "stolen" not in str(found)


def test_a_variable_appears_once():
    names = [entry["name"] for entry in container(manifest(FULL, profile=PROFILE))["env"]]
    assert len(names) == len(set(names))


def test_the_agent_launches_the_command_and_starts_isolated():
    """AG1, PS4."""
    made = manifest(FULL)
    assert container(made)["command"] == [
        "python3",
        "-I",
        "/trainer/agent/agent.pyz",
        "--",
        "python3",
        "train.py",
    ]
    assert container(made)["args"] == ["--fast"]


def test_a_role_has_its_own_image_command_and_resources():
    server = container(manifest(FULL, member=MemberId("ps", 0)))
    assert (server["image"], server["command"][-1]) == ("ps:1", "serve")
    assert server["resources"] == {"requests": {"cpu": "4"}}


def test_kubelet_never_restarts_and_judges_the_agent_only():
    """AG3, AG9."""
    made = manifest()
    assert made["spec"]["restartPolicy"] == "Never"
    probes = {name: container(made)[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: probe["httpGet"]["path"] for name, probe in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    startup = probes["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 1800


def test_last_words_go_where_kubelet_finds_them():
    """AG6."""
    assert container(manifest())["terminationMessagePath"] == "/dev/termination-log"


def test_the_token_is_bound_to_the_pod_for_our_audience_and_no_other_is_mounted():
    """AA1."""
    made = manifest()
    assert made["spec"]["automountServiceAccountToken"] is False
    (token,) = [volume for volume in made["spec"]["volumes"] if volume["name"] == "trainer-token"]
    (source,) = token["projected"]["sources"]
    assert source["serviceAccountToken"] == {
        "audience": "trainer-operator",
        "expirationSeconds": 3600,
        "path": "token",
    }
    (mount,) = [m for m in container(made)["volumeMounts"] if m["name"] == "trainer-token"]
    assert mount["readOnly"] is True


@pytest.mark.parametrize(
    ("ports", "limits"), [(1, "32768 32768"), (1024, "32768 33791"), (32768, "32768 65535")]
)
def test_the_port_range_is_the_only_sysctl(ports, limits):
    """PS2."""
    made = manifest(with_pod_spec(ports=ports))
    assert made["spec"]["securityContext"]["sysctls"] == [
        {"name": "net.ipv4.ip_local_port_range", "value": limits}
    ]


def test_seccomp_is_on_and_nothing_of_the_host_is_used():
    """PS1, PS2."""
    made = manifest(FULL, profile=PROFILE)
    assert made["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "nodeName", "runtimeClassName"} & set(made["spec"])
    (installer,) = made["spec"]["initContainers"]
    assert installer["securityContext"]["allowPrivilegeEscalation"] is False
    assert installer["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_users_security_context_goes_where_each_of_its_fields_belongs():
    """PS2: groups of volumes are the pod's, all else is the container's."""
    asked = {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "fsGroup": 2000,
        "supplementalGroups": [3000],
        "capabilities": {"drop": ["ALL"]},
    }
    made = manifest(with_pod_spec(securityContext=asked))
    of_pod = made["spec"]["securityContext"]
    assert (of_pod["fsGroup"], of_pod["supplementalGroups"]) == (2000, [3000])
    assert container(made)["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_user_cannot_drop_fewer_capabilities_and_root_is_the_administrators_choice():
    """PS1, PS2."""
    made = manifest(with_pod_spec(securityContext={"capabilities": {"drop": ["CHOWN"]}}))
    assert container(made)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    free = manifest(settings=Settings(allow_root=True))
    assert "runAsNonRoot" not in free["spec"]["securityContext"]


def volume_names(made):
    return [volume["name"] for volume in made["spec"]["volumes"]]


def test_a_claim_is_mounted_and_the_store_lies_in_it():
    """CK1."""
    made = manifest(FULL)
    assert {"name": "trainer-checkpoints", "persistentVolumeClaim": {"claimName": "pvc-backups"}} in made[
        "spec"
    ]["volumes"]
    assert {"name": "trainer-checkpoints", "mountPath": "/trainer/checkpoints"} in container(made)[
        "volumeMounts"
    ]
    assert environment(made)["TRAINER_STORE"]["value"] == "/trainer/checkpoints/team/ns/t-01234567"


@pytest.mark.parametrize(
    ("checkpoint", "directory"),
    [
        (None, ""),
        ({"bucket": "claim"}, "/trainer/checkpoints/ns/t-01234567"),
        ({"bucket": "file:///srv/ckpt"}, "/srv/ckpt/ns/t-01234567"),
        ({"bucket": "file:///srv/ckpt/", "prefix": "a/b"}, "/srv/ckpt/a/b/ns/t-01234567"),
        ({"bucket": "s3://bucket/prefix"}, "s3://bucket/prefix/ns/t-01234567"),
        ({"bucket": "s3://bucket", "prefix": "a/b"}, "s3://bucket/a/b/ns/t-01234567"),
    ],
)
def test_the_directory_of_the_store_is_the_trainers_own(checkpoint, directory):
    """CK1: two Trainers of one name, one after the other, never share it."""
    spec = {**MINIMAL, **({"checkpoint": checkpoint} if checkpoint else {})}
    assert store_directory(trainer(spec)) == directory


@pytest.mark.parametrize("bucket", ["file:///srv/ckpt", "s3://bucket"])
def test_only_a_claim_adds_a_volume(bucket):
    assert "trainer-checkpoints" not in volume_names(manifest({**MINIMAL, "checkpoint": {"bucket": bucket}}))


def test_the_keys_of_a_bucket_are_mounted_from_the_trainers_namespace():
    """TN1, TN3: by name, never read, and out of the way of the training's own AWS variables."""
    checkpoint = {"bucket": "s3://bucket", "credentialsSecret": "keys"}
    made = manifest({**MINIMAL, "checkpoint": checkpoint})
    assert {"name": "trainer-store", "secret": {"secretName": "keys"}} in made["spec"]["volumes"]
    mount = {"name": "trainer-store", "mountPath": "/trainer/store-credentials", "readOnly": True}
    assert mount in container(made)["volumeMounts"]
    assert environment(made)["TRAINER_STORE_CREDENTIALS"]["value"] == "/trainer/store-credentials"
    assert not [name for name in environment(made) if name.startswith("AWS_")]


@pytest.mark.parametrize("bucket", ["file:///srv/ckpt", "claim"])
def test_a_secret_is_mounted_for_a_bucket_only(bucket):
    """TN3: nothing is mounted that nobody uses."""
    made = manifest({**MINIMAL, "checkpoint": {"bucket": bucket, "credentialsSecret": "keys"}})
    assert "trainer-store" not in volume_names(made)
    assert "TRAINER_STORE_CREDENTIALS" not in environment(made)


def test_the_profile_comes_from_the_snapshot_and_never_from_elsewhere():
    """TN7."""
    made = manifest(FULL, profile=PROFILE)
    assert {"name": "trainer-profile", "secret": {"secretName": "shared-config"}} in made["spec"]["volumes"]
    assert {"name": "trainer-profile", "mountPath": "/etc/secrets", "readOnly": True} in container(made)[
        "volumeMounts"
    ]
    assert made["spec"]["nodeSelector"] == {"pool": "gpu", "zone": "b"}
    assert [toleration["key"] for toleration in made["spec"]["tolerations"]] == ["gpu", "spot"]
    without = manifest({**FULL, "profile": "shared"})
    assert "trainer-profile" not in volume_names(without)
    assert "FROM_PROFILE" not in environment(without)


def test_shared_memory_is_a_volume_of_the_size_that_was_asked_for():
    made = manifest(with_pod_spec(shmSize="2Gi"))
    assert {"name": "trainer-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in made["spec"][
        "volumes"
    ]
    assert "trainer-shm" not in volume_names(manifest())


def test_what_is_not_asked_for_is_left_out():
    """R1: a field that the server would fill in is no difference."""
    made = manifest()
    assert not {"nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName"} & set(
        made["spec"]
    )
    assert all(value not in (None, {}, []) for value in made["spec"].values())
    assert all(value not in (None, {}, []) for value in container(made).values())


def test_every_mount_has_its_volume():
    for made in (manifest(FULL, profile=PROFILE), manifest()):
        mounts = {mount["name"] for mount in container(made)["volumeMounts"]}
        assert mounts <= set(volume_names(made))


def with_worker(**settings):
    return {**MINIMAL, "topology": {"workers": 2, "roles": {"worker": settings}}}


def test_a_queue_can_say_where_and_when_each_role_runs():
    """TR35: what Kueue writes on admission, all of it: labels, annotations, node selector, tolerations and gates."""
    made = manifest(
        with_worker(
            labels={"kueue.x-k8s.io/podset": "worker"},
            annotations={"kueue.x-k8s.io/workload": "trainer-t"},
            nodeSelector={"cloud/instance": "spot"},
            tolerations=[{"key": "spot", "operator": "Exists"}],
            schedulingGates=[{"name": "kueue.x-k8s.io/topology"}],
        )
    )
    assert made["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
    assert made["metadata"]["labels"]["trainer-name"] == "t"
    assert made["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": "trainer-t"}
    assert made["spec"]["nodeSelector"] == {"cloud/instance": "spot"}
    assert [toleration["key"] for toleration in made["spec"]["tolerations"]] == ["spot"]
    assert made["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]


def test_labels_and_annotations_of_a_role_are_merged_into_those_of_all_and_win():
    """TR35."""
    spec = with_worker(labels={"team": "b"}, annotations={"note": "role"})
    spec["topology"]["podSpec"] = {
        "labels": {"team": "a", "site": "x"},
        "annotations": {"note": "all", "k": "v"},
    }
    made = manifest(spec)
    assert {"team": "b", "site": "x"}.items() <= made["metadata"]["labels"].items()
    assert made["metadata"]["annotations"] == {"note": "role", "k": "v"}


def test_the_queue_is_told_to_kueue_by_its_label():
    """The user's own labels do not name another one."""
    made = with_spec(plain_trainer(), scheduling=Scheduling(queue="research"))
    assert (
        pod_manifest(made, WORKER, 0, SETTINGS)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        == "research"
    )
    labels = pod_manifest(plain_trainer(), WORKER, 0, SETTINGS)["metadata"]["labels"]
    assert "kueue.x-k8s.io/queue-name" not in labels
