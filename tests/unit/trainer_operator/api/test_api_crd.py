"""The generated CRDs: up to date, small, complete, and with the same defaults as the code."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import examples_api as examples
from trainer_operator.api import Checkpoint, Trainer, TrainingProfile, crd, generate
from trainer_operator.api.profile import EffectiveRetryPolicy, effective_retry_policy
from trainer_operator.api.topology import DEFAULT_PORTS

ROOT = Path(__file__).parents[4]
CRDS = ROOT / "crds"
KINDS = {kind.name: kind for kind in crd.KINDS}


def schema_of(name):
    definition = crd.custom_resource_definition(KINDS[name])
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def fields_of(schema, path=""):
    """Walk all fields with their paths."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields_of(child, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if below in schema:
            yield from fields_of(schema[below], f"{path}[]")


def defaulted(value, schema):
    """Apply a schema's defaults, as the API server does."""
    if isinstance(value, dict):
        result = {
            name: defaulted(child, schema.get("properties", {}).get(name, {}))
            for name, child in value.items()
        }
        for name, child in schema.get("properties", {}).items():
            if name not in result and "default" in child:
                result[name] = defaulted(child["default"], child)
        return result
    if isinstance(value, list):
        return [defaulted(item, schema.get("items", {})) for item in value]
    return value


def test_files_are_what_the_models_say():
    """CR12: run `make generate` after a change of the models."""
    assert generate.drift(ROOT, generate.render()) == []


def test_check_shows_the_drift_and_fails(tmp_path):
    """CR12."""
    files = generate.render()
    generate.write(tmp_path, files)
    (tmp_path / "crds" / "trainer.operator.kubeflow.org_trainers.yaml").write_text("kind: Old\n")
    (tmp_path / "crds" / "trainer.operator.kubeflow.org_gone.yaml").write_text("kind: Gone\n")
    command = [sys.executable, "-m", "trainer_operator.api.generate", "--root", str(tmp_path)]
    check = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert check.returncode == 1
    assert "-kind: Old" in check.stdout
    assert "-kind: Gone" in check.stdout
    assert "make generate" in check.stderr
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0
    assert generate.drift(tmp_path, files) == []
    assert not (tmp_path / "crds" / "trainer.operator.kubeflow.org_gone.yaml").exists()


def test_each_file_is_small_enough_for_plain_apply():
    """CR2, EC18."""
    sizes = {path.name: path.stat().st_size for path in CRDS.glob("*.yaml")}
    assert len(sizes) == 5
    assert max(sizes.values()) < 200_000, sizes


@pytest.mark.parametrize("name", KINDS)
def test_every_field_is_described(name):
    """CR12: `kubectl explain` shows a sentence for each."""
    undescribed = [
        path
        for path, field in fields_of(schema_of(name))
        if not field.get("description", "").endswith(".") and path != ".metadata"
    ]
    assert undescribed == []


@pytest.mark.parametrize("good", examples.GOOD, ids=lambda case: case.name)
def test_defaults_in_the_schema_are_the_defaults_in_the_code(good):
    """TR33."""
    spec_schema = schema_of(good.obj["kind"])["properties"]["spec"]
    model = {"Trainer": Trainer, "TrainingProfile": TrainingProfile, "Checkpoint": Checkpoint}[
        good.obj["kind"]
    ]
    by_server = defaulted(good.obj["spec"], spec_schema)
    assert model.read(good.obj).spec.dump() == model.read({**good.obj, "spec": by_server}).spec.dump()
    assert model.read(good.obj).spec.dump() == by_server


def test_described_retry_defaults_are_those_in_the_code():
    """TR33: they have no schema default, since the profile comes between."""
    policy = EffectiveRetryPolicy()
    retry = schema_of("Trainer")["properties"]["spec"]["properties"]["retryPolicy"]["properties"]
    backoff = retry["backoff"]["properties"]
    assert f"Default {policy.backoff_limit}." in retry["backoffLimit"]["description"]
    assert f"Default {policy.restart_policy}." in retry["restartPolicy"]["description"]
    assert f"Default {policy.base_seconds}." in backoff["baseSeconds"]["description"]
    assert f"Default {policy.cap_seconds}." in backoff["capSeconds"]["description"]
    assert f"Default {policy.reset_after_seconds}." in backoff["resetAfterSeconds"]["description"]
    assert effective_retry_policy(None, None) == policy


def test_status_has_no_defaults():
    """TR32: absent is not zero."""
    for name in KINDS.keys() - {"AuditLog"}:
        status = schema_of(name)["properties"]["status"]
        assert [path for path, field in fields_of(status) if "default" in field] == []


def test_pod_settings_default_under_an_absent_parent():
    """CR1 table: the parent gets `{}`."""
    spec = defaulted(
        examples.trainer("spec.topology", None)["spec"], schema_of("Trainer")["properties"]["spec"]
    )
    assert spec["topology"]["workers"] == 1
    assert spec["topology"]["podSpec"]["ports"] == DEFAULT_PORTS


def test_scale_points_to_workers_and_a_selector_of_text():
    """CR6, EC2."""
    version = crd.custom_resource_definition(KINDS["Trainer"])["spec"]["versions"][0]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.topology.workers",
        "statusReplicasPath": ".status.workers",
        "labelSelectorPath": ".status.selector",
    }
    status = schema_of("Trainer")["properties"]["status"]["properties"]
    assert status["selector"]["type"] == "string"
    assert status["workers"]["type"] == "integer"


def test_print_columns_read_fields_that_exist():
    """CR9."""
    for kind in crd.KINDS:
        schema = schema_of(kind.name)
        for column in kind.columns:
            node = schema
            for part in column.path.removeprefix(".").split("."):
                if part == "metadata":
                    break
                assert part in node["properties"], f"{kind.name}: {column.path}"
                node = node["properties"][part]


def test_step_counters_are_int64():
    """CR1."""
    status = schema_of("Trainer")["properties"]["status"]["properties"]
    assert status["globalStep"]["format"] == "int64"
    assert status["lastCheckpoint"]["properties"]["step"]["format"] == "int64"


def test_no_reference_has_a_namespace_field():
    """TN1: but in a record of what was done, which is nobody's to write."""
    for name in KINDS.keys() - {"AuditLog"}:
        paths = [
            path
            for path, _ in fields_of(schema_of(name))
            if path.lower().endswith(("namespace", "namespaces"))
        ]
        assert paths == []


@pytest.mark.parametrize(
    "field",
    ["hostPath", "hostNetwork", "hostPID", "hostIPC", "hostPort", "nodeName", "runtimeClassName", "hostUsers",
     "sysctls", "privileged", "procMount", "add", "serviceAccountToken"],
)  # fmt: skip
def test_what_loosens_isolation_is_not_offered(field):
    """PS2, ATK18: the field does not exist, so it is pruned."""
    for name in KINDS:
        assert [path for path, _ in fields_of(schema_of(name)) if path.endswith(f".{field}")] == []


def test_files_have_no_anchors():
    """CR12: readers and patches see every value."""
    for path in CRDS.glob("*.yaml"):
        assert not [
            token for token in yaml.scan(path.read_text()) if isinstance(token, yaml.tokens.AliasToken)
        ]


def test_manifests_of_the_design_are_shipped_unchanged():
    """CR3: they are the contract with users."""
    manifests = ROOT / "examples" / "manifests"
    llama = Trainer.read(yaml.safe_load((manifests / "llama-7b-finetune.yaml").read_text()))
    assert (llama.spec.epochs, llama.spec.topology.workers, llama.spec.topology.parameter_servers) == (
        10,
        4,
        1,
    )
    assert llama.spec.checkpoint is not None
    assert llama.spec.checkpoint.bucket == "pvc-backups"
    cheap = TrainingProfile.read(yaml.safe_load((manifests / "cost-optimized-32gpu.yaml").read_text()))
    assert cheap.spec.retry_policy is not None
    assert cheap.spec.retry_policy.backoff_limit == 5
