"""Weights in a member's pod: init containers, arguments, volumes, and who sees the token."""

from simulation.cluster import trainer
from simulation.views import OTHER, WORKER, with_spec, with_status
from trainer_operator.api.pod import EnvVar, VolumeMount
from trainer_operator.api.status import TrainerStatus, WeightsStatus
from trainer_operator.api.trainer import Weights
from trainer_operator.trainer.pods import pod_manifest
from trainer_operator.trainer.views import Settings
from trainer_operator.trainer.weightfiles import TOKEN_MOUNT

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SETTINGS = Settings(operator_image="operator:1", hub="https://hub.example")
RUN = ["python3", "-I", "-m", "trainer_operator.agent", "weights"]
HUB = ["--hub=https://hub.example", "--repo=org/model"]


def with_weights(of=None, *, pinned=None, mounts=None, **fields):
    weights = {"repo": "org/model", "mountPath": "/weights", **fields}
    of = with_spec(of or trainer(), weights=Weights.read({"huggingFace": weights}))
    if mounts is not None:
        pod_spec = of.spec.topology.pod_spec.model_copy(update={"volume_mounts": tuple(mounts)})
        of = with_spec(of, topology=of.spec.topology.model_copy(update={"pod_spec": pod_spec}))
    status = TrainerStatus(weights=pinned)
    return with_status(of, status)


def pinned(revision="main", repo="org/model"):
    return WeightsStatus(repo=repo, revision=revision, commit=COMMIT)


def manifest(of, member=WORKER):
    return pod_manifest(of, member, 0, SETTINGS)["spec"]


def containers(of):
    return {each["name"]: each for each in manifest(of)["initContainers"]}


def mount_names(container):
    return {mount["name"] for mount in container["volumeMounts"]}


def test_the_first_pod_pins_the_revision_and_then_fetches_what_it_pinned():
    """HF1."""
    found = containers(with_weights(revision="v1"))
    assert list(found) == ["agent", "weights-pin", "weights"]
    pin_file = "--pin-file=/trainer/agent/weights-commit"
    assert found["weights-pin"]["command"] == [*RUN, "pin", *HUB, "--revision=v1", pin_file]
    assert found["weights"]["command"] == [*RUN, "fetch", *HUB, pin_file, "--folder=/weights", "--"]


def test_a_pod_of_a_pinned_trainer_gets_repository_and_commit_from_status():
    """HF1: whatever the spec says by now."""
    found = containers(with_weights(repo="org/newer", revision="v2", pinned=pinned()))
    assert list(found) == ["agent", "weights"]
    assert found["weights"]["command"] == [
        *RUN,
        "fetch",
        *HUB,
        f"--commit={COMMIT}",
        "--folder=/weights",
        "--",
    ]


def test_files_are_arguments_with_their_hashes_and_kubernetes_expands_nothing_in_them():
    """HF3, PS4."""
    files = [{"path": "a.safetensors", "sha256": "a" * 64}, {"path": "$(HOME)/-b.json"}]
    found = containers(with_weights(files=files, pinned=pinned()))
    assert found["weights"]["command"][-3:] == ["--", f"{'a' * 64}:a.safetensors", ":$$(HOME)/-b.json"]


def test_the_init_containers_are_ours_without_environment_and_meet_restricted():
    """PS1, PS4: HF_ENDPOINT of a tenant reaches nothing."""
    made = with_weights(
        with_spec(trainer(), env=(EnvVar.read({"name": "HF_ENDPOINT", "value": "http://evil"}),))
    )
    for each in manifest(made)["initContainers"][1:]:
        assert each["image"] == "operator:1"
        assert "env" not in each
        assert each["securityContext"]["allowPrivilegeEscalation"] is False


def test_files_lie_in_a_volume_of_the_pod_that_the_training_only_reads():
    """HF4."""
    spec = manifest(with_weights())
    assert {"name": "trainer-weights", "emptyDir": {}} in spec["volumes"]
    (training,) = spec["containers"]
    mount = {"name": "trainer-weights", "mountPath": "/weights"}
    assert {**mount, "readOnly": True} in training["volumeMounts"]
    assert mount in containers(with_weights())["weights"]["volumeMounts"]


def test_a_volume_that_the_user_mounts_there_is_filled_and_kept():
    """HF3: what is reused is checked by the container; the training may mount it read only."""
    mount = VolumeMount.read({"name": "models", "mountPath": "/weights", "subPath": "m", "readOnly": True})
    of = with_weights(mounts=[mount])
    spec = manifest(of)
    assert not [volume for volume in spec["volumes"] if volume["name"].startswith("trainer-weights")]
    (training,) = spec["containers"]
    assert [each for each in training["volumeMounts"] if each["mountPath"] == "/weights"] == [mount.dump()]
    writes = {"name": "models", "mountPath": "/weights", "subPath": "m"}
    assert writes in containers(of)["weights"]["volumeMounts"]


def test_the_token_is_mounted_into_the_init_containers_alone():
    """TN1, TN3, ATK12: the training never sees it."""
    of = with_weights(credentialsSecret="hub")
    spec = manifest(of, OTHER)
    secret = {"secretName": "hub", "optional": True}
    assert {"name": "trainer-weights-token", "secret": secret} in spec["volumes"]
    (training,) = spec["containers"]
    assert "trainer-weights-token" not in mount_names(training) | mount_names(containers(of)["agent"])
    for name in ("weights-pin", "weights"):
        assert f"--token={TOKEN_MOUNT}" in containers(of)[name]["command"]
        assert "trainer-weights-token" in mount_names(containers(of)[name])


def test_a_trainer_without_weights_has_nothing_of_it():
    """R1: pods of others are what they were."""
    spec = manifest(trainer())
    assert [each["name"] for each in spec["initContainers"]] == ["agent"]
    assert "weights" not in repr(spec)
