"""The CRDs and manifests on the real API server, with the kubectl that users have."""

import copy
import json
from pathlib import Path

import pytest
import yaml

import examples_api as examples
import examples_api_bad as refused
from trainer_operator.api import names
from trainer_operator.api.crd import KINDS

ROOT = Path(__file__).parents[3]
MANIFESTS = sorted((ROOT / "examples" / "manifests").glob("*.yaml"))
GROUP = "trainer.operator.kubeflow.org"
PLURALS = {kind.name: kind.plural for kind in KINDS}

pytestmark = pytest.mark.usefixtures("installed")


def by_name(case):
    return case.name


class Api:
    """Requests for objects of our kinds, as the administrator."""

    def __init__(self, admin, namespace):
        self._admin = admin
        self._namespace = namespace

    def send(self, method, obj, *, subresource="", query="", named=True, validation="Strict"):
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{self._namespace}/{PLURALS[obj['kind']]}"
        path += f"/{obj['metadata']['name']}" if named else ""
        path += f"/{subresource}" if subresource else ""
        return self._admin.request(method, f"{path}?fieldValidation={validation}{query}", obj)

    def try_create(self, obj):
        """Create without a trace; return the status code and, when refused, the server's words."""
        answer = self.send("POST", obj, named=False, query="&dryRun=All")
        return answer.status, answer.json().get("message", "")

    def create(self, obj):
        answer = self.send("POST", obj, named=False)
        assert answer.status == 201, answer.body
        return answer.json()

    def replace(self, obj, *, subresource=""):
        return self.send("PUT", obj, subresource=subresource)


@pytest.fixture
def api(control_plane, namespace):
    return Api(control_plane.admin, namespace)


def test_second_plain_apply_of_the_crds_changes_nothing(installed):
    """CR2, EC18."""
    _, second = installed
    assert len(second.splitlines()) == 4
    assert all(line.endswith(" unchanged") for line in second.splitlines())


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_applies_unchanged_and_twice(manifest, kubectl, namespace):
    """CR2: the manifests of the design are the contract with users."""
    first = kubectl("apply", "--validate=strict", "-n", namespace, "-f", str(manifest))
    second = kubectl("apply", "--validate=strict", "-n", namespace, "-f", str(manifest))
    assert first.strip().endswith(" created")
    assert second.strip().endswith(" unchanged")


def test_server_writes_the_defaults(kubectl, namespace):
    """TR33, CR1 table: under absent parents too."""
    kubectl("apply", "-n", namespace, "-f", str(ROOT / "examples" / "manifests" / "llama-7b-finetune.yaml"))
    spec = json.loads(kubectl("get", "trn", "llama-7b-finetune", "-n", namespace, "-o", "json"))["spec"]
    assert spec["topology"]["masters"] == 0
    assert spec["topology"]["podSpec"]["ports"] == 1024
    assert spec["scheduling"] == {"gang": True}
    assert spec["checkpoint"]["stagingTimeoutSeconds"] == 600
    assert spec["cleanPodPolicy"] == "Running"
    assert "retryPolicy" not in spec


@pytest.mark.parametrize("good", examples.GOOD, ids=by_name)
def test_good_example_is_taken(good, api):
    """CR3."""
    status, message = api.try_create(good.obj)
    assert status == 201, message


def test_bad_examples_are_refused_with_field_value_and_what_is_allowed(api):
    """CR3, CR5, TR07, TR29, TR31, EC1: one answer per example, all wrong ones listed."""
    wrong = []
    for bad in refused.BAD:
        status, message = api.try_create(bad.obj)
        path = bad.server_path or bad.path
        if (
            status != 422
            or path not in message
            or bad.shown.lower() not in message.lower()
            or bad.allowed.lower() not in message.lower()
        ):
            wrong.append((bad.name, status, message))
    assert wrong == []


@pytest.mark.parametrize("kind", ["Trainer", "TrainingProfile", "Checkpoint"])
def test_unknown_field_is_refused_under_strict_validation(kind, kubectl, namespace):
    """Issue: an unknown field (strict); kubectl's default is strict."""
    base = {
        "Trainer": examples.TRAINER,
        "TrainingProfile": examples.PROFILE,
        "Checkpoint": examples.CHECKPOINT,
    }
    obj = examples.at(base[kind], "spec.worker", 3)
    result = kubectl.run("apply", "-n", namespace, "-f", "-", stdin=json.dumps(obj))
    assert result.returncode != 0
    assert 'unknown field "spec.worker"' in result.stderr


@pytest.mark.parametrize(
    "field",
    [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "nodeName",
        "runtimeClassName",
        "hostUsers",
        "sysctls",
        "initContainers",
    ],
)
def test_field_that_loosens_isolation_is_pruned(field, api):
    """PS2, ATK18: also without strict validation nothing of it is kept."""
    obj = examples.pod(field, True)
    status, message = api.try_create(obj)
    assert status == 400, message
    lenient = api.send("POST", obj, named=False, query="&dryRun=All", validation="Ignore")
    assert lenient.status == 201
    assert field not in lenient.json()["spec"]["topology"]["podSpec"]


def test_changes_are_judged_as_the_table_says(api):
    """CR3, TR36: transition rules on the real server."""
    wrong = []
    for number, change in enumerate(examples.CHANGES):
        old, new = copy.deepcopy(change.old), copy.deepcopy(change.new)
        old["metadata"]["name"] = new["metadata"]["name"] = f"change-{number}"
        new["metadata"]["resourceVersion"] = api.create(old)["metadata"]["resourceVersion"]
        answer = api.replace(new)
        message = answer.json().get("message", "")
        if not change.path:
            right = answer.status == 200
        else:
            right = answer.status == 422 and change.path in message and change.allowed in message
        if not right:
            wrong.append((change.name, answer.status, message))
    assert wrong == []


def test_checkpoint_state_never_goes_back(api):
    """CR8, CS7: every pair of states through the status subresource."""
    wrong = []
    for number, change in enumerate(examples.STATE_CHANGES):
        obj = examples.at(examples.CHECKPOINT, "metadata.name", f"state-{number}")
        created = api.create(obj)
        before, after = (version.get("status", {}) for version in (change.old, change.new))
        if before:
            created = api.replace({**created, "status": before}, subresource="status").json()
            assert created["status"] == before
        answer = api.replace({**created, "status": after}, subresource="status")
        message = answer.json().get("message", "")
        right = (
            answer.status == 200 if not change.path else answer.status == 422 and change.allowed in message
        )
        if not right:
            wrong.append((change.name, answer.status, message))
    assert wrong == []


def test_status_is_written_through_its_subresource_only(api):
    """CR8."""
    created = api.create(examples.TRAINER)
    answer = api.replace({**created, "status": {"phase": "Running"}})
    assert "status" not in answer.json()
    written = api.replace({**answer.json(), "status": {"phase": "Running"}}, subresource="status").json()
    assert written["status"] == {"phase": "Running"}
    assert written["metadata"]["generation"] == created["metadata"]["generation"]


def test_scale_reads_workers_and_a_selector_of_worker_pods(api, kubectl, namespace):
    """CR6, EC2: what an autoscaler sees."""
    created = api.create(examples.TRAINER)
    status = {"workers": 1, "selector": names.worker_selector("mnist")}
    api.replace({**created, "status": status}, subresource="status")
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/trainers/mnist/scale"
    scale = json.loads(kubectl("get", "--raw", path))
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {
        "replicas": 1,
        "selector": "trainer-name=mnist,trainer.operator.kubeflow.org/role=worker",
    }


def test_kubectl_scale_changes_workers_within_the_bounds(api, kubectl, namespace):
    """CR6, ATK4: schema and rules hold on /scale too."""
    api.create(examples.trainer("spec.elastic", {"minWorkers": 2, "maxWorkers": 6}))
    kubectl("scale", "trn/mnist", "-n", namespace, "--replicas=5")
    assert kubectl("get", "trn", "mnist", "-n", namespace, "-o", "jsonpath={.spec.topology.workers}") == "5"
    for replicas, sentence in (
        (0, "greater than or equal to 1"),
        (1, "must not be less than elastic.minWorkers"),
        (7, "must not be more than elastic.maxWorkers"),
        (20_000, "less than or equal to 10000"),
    ):
        refused = kubectl.run("scale", "trn/mnist", "-n", namespace, f"--replicas={replicas}")
        assert refused.returncode != 0
        assert sentence in refused.stderr, refused.stderr


def test_three_applies_leave_the_generation_alone(api, kubectl, namespace):
    """TR16: the server's defaults are no change."""
    for _ in range(3):
        kubectl(
            "apply", "--server-side", "--field-manager=parent", "-n", namespace, "-f", "-",
            stdin=json.dumps(examples.TRAINER),
        )  # fmt: skip
    generation = kubectl("get", "trn", "mnist", "-n", namespace, "-o", "jsonpath={.metadata.generation}")
    assert generation == "1"


def columns(kubectl, namespace, resource, *options):
    """Return the header and the only row of `kubectl get`."""
    lines = kubectl("get", resource, "-n", namespace, *options).splitlines()
    assert len(lines) == 2
    return lines[0].split(), lines[1].split()


def test_print_columns_of_a_trainer(api, kubectl, namespace):
    """CR9."""
    created = api.create(examples.trainer("spec.profile", "cheap"))
    status = {
        "phase": "Running",
        "globalStep": 1200,
        "epochsCompleted": 3,
        "readyWorkers": "1/2",
        "readyServers": "1/1",
        "restarts": 4,
        "nodes": 2,
        "lastCheckpoint": {"name": "mnist-1", "step": 1000},
    }
    assert api.replace({**created, "status": status}, subresource="status").status == 200
    header, row = columns(kubectl, namespace, "trn")
    assert header == ["NAME", "PHASE", "STEP", "EPOCH", "WORKERS", "RESTARTS", "CHECKPOINT", "AGE"]
    assert row[:-1] == ["mnist", "Running", "1200", "3", "1/2", "4", "1000"]
    header, row = columns(kubectl, namespace, "trn", "-o", "wide")
    assert header[7:] == ["PS", "PROFILE", "NODES", "AGE"]
    assert row[7:-1] == ["1/1", "cheap", "2"]


def test_print_columns_of_a_checkpoint(api, kubectl, namespace):
    """CR9."""
    created = api.create(examples.CHECKPOINT)
    status = {"state": "Committed", "step": 100, "size": "1.5GiB", "copies": 2, "health": "Healthy"}
    assert api.replace({**created, "status": status}, subresource="status").status == 200
    header, row = columns(kubectl, namespace, "trnc")
    assert header == ["NAME", "TRAINER", "STATE", "STEP", "SIZE", "COPIES", "HEALTH", "AGE"]
    assert row[:-1] == ["mnist-now", "mnist", "Committed", "100", "1.5GiB", "2", "Healthy"]


def test_category_lists_all_kinds_and_all_does_not(api, kubectl, namespace, tmp_path):
    """CR9; with a fresh discovery cache, since kubectl doesn't refresh it for categories."""
    for obj in (examples.TRAINER, examples.PROFILE, examples.CHECKPOINT):
        api.create(obj)
    listed = kubectl(
        "get", "kubeflow-training", "-n", namespace, "-o", "name", "--cache-dir", str(tmp_path)
    ).split()
    assert sorted(listed) == [
        f"checkpoint.{GROUP}/mnist-now",
        f"trainer.{GROUP}/mnist",
        f"trainingprofile.{GROUP}/cheap",
    ]
    assert "mnist" not in kubectl("get", "all", "-n", namespace)


@pytest.mark.parametrize("resource", ["trainers", "trainingprofiles", "checkpoints"])
def test_kubectl_explains_every_field(resource, kubectl):
    """CR12."""
    crd = yaml.safe_load((ROOT / "crds" / f"{GROUP}_{resource}.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        text = kubectl("explain", f"{resource}.{part}", f"--api-version={GROUP}/v1alpha1")
        for name, field in schema["properties"][part]["properties"].items():
            assert f"  {name}\t" in text
            assert " ".join(field["description"].split()[:4]) in " ".join(text.split())
    assert (
        "<empty>"
        not in kubectl("explain", resource, f"--api-version={GROUP}/v1alpha1").partition("FIELDS")[0]
    )


def undescribed(schema, path=""):
    """List the fields below that `kubectl explain` would show without a word."""
    found = []
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}"
        if not field.get("description"):
            found.append(below)
        found += undescribed(field, below)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            found += undescribed(schema[inner], f"{path}[]")
    return found


def test_server_publishes_a_description_of_every_field(control_plane):
    """CR12: this document is what `kubectl explain` reads, to any depth."""
    document = control_plane.admin.request("GET", f"/openapi/v3/apis/{GROUP}/v1alpha1").json()
    schemas = document["components"]["schemas"]
    for kind in PLURALS:
        properties = schemas[f"org.kubeflow.operator.trainer.v1alpha1.{kind}"]["properties"]
        assert len(properties["spec"]["properties"]) > 3
        parts = {part: properties[part] for part in ("spec", "status") if part in properties}
        assert undescribed({"properties": parts}) == []
