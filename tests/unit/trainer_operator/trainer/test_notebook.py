"""The notebook pod: when there is one, what it is made of, and what is told of it (JK2)."""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from runtime.cache.projection import Pod
from runtime.client.errors import Forbidden, Invalid
from runtime.clock import format_time
from runtime.controller.reconciler import Request
from runtime.objects import PODS, ObjectKey
from runtime.testing.clock import SimClock
from simulation.apiserver import Api, Cached
from trainer_operator.api.resources import TRAINERS
from trainer_operator.api.trainer import Trainer
from trainer_operator.trainer import phase
from trainer_operator.trainer.draft import Draft, EmitEvent
from trainer_operator.trainer.notebook import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    STEADY,
    env_fault,
    free_name,
    notebook_manifest,
    pause_after,
    view,
)
from trainer_operator.trainer.notebooks import NotebookReconciler, concerns_notebook
from trainer_operator.trainer.notebookstate import CONDITION, follow
from trainer_operator.trainer.observe import member_of, pods_by_member
from trainer_operator.trainer.views import NotebookView, Observed, Settings

GOLDEN = Path(__file__).parents[3] / "golden"
KEY = ObjectKey("team", "t")
UID = "0123456789"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "KG_AUTH_TOKEN"


def stored(*, phase="Running", members="Active", notebook=True, env=(), deleted=False, generation=1, **spec):
    metadata = {"name": KEY.name, "namespace": KEY.namespace, "uid": UID, "generation": generation}
    if deleted:
        metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    asked = {"notebook": {} if notebook is True else notebook} if notebook else {}
    return {
        "metadata": metadata,
        "spec": {"epochs": 1, "image": "image:1", "env": list(env), **asked, **spec},
        "status": {"phase": phase, "membership": {"phase": members}},
    }


def trainer(**changes):
    return Trainer.read(stored(**changes))


def manifest(of, name="t-notebook"):
    return notebook_manifest(of, of.spec.notebook, name, Settings())


# -- what it is made of


def test_the_manifest_is_the_one_on_record():
    """PS1, TN3, JK2: restricted, the tenant's account without its token, the gateway's token from a Secret."""
    spec = {
        "topology": {
            "podSpec": {
                "serviceAccountName": "team",
                "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                "volumeMounts": [{"name": "data", "mountPath": "/srv"}],
            },
        },
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "pull"}],
        "env": [{"name": "LEVEL", "value": "info"}],
    }
    asked = {"image": "jupyter:1", "kernelName": "ir", "idleTimeoutSeconds": 30}
    pod = manifest(trainer(notebook=asked, **spec))
    assert pod == json.loads((GOLDEN / "notebook_pod.json").read_text())


def test_an_administrator_who_allows_root_does_not_allow_it_here():
    """JK2: no UID 0 (enterprise_gateway's KERNEL_UID)."""
    of = trainer()
    pod = notebook_manifest(of, of.spec.notebook, "t-notebook", Settings(allow_root=True))
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    "value", ["a\nb: {c: d}\n", '"},"hostNetwork":true,"x":{"', "$(KG_AUTH_TOKEN)", "{{ x }}", "${jndi:x}"]
)
def test_hostile_values_are_one_literal_value_before_ours(value):
    """EC17, ATK20, UC1: no template sees them; kubelet replaces $(NAME) by earlier variables only."""
    pod = manifest(trainer(env=[{"name": "X", "value": value}]))
    variables = pod["spec"]["containers"][0]["env"]
    assert variables[0] == {"name": "X", "value": value}
    assert set(pod["spec"]) <= {
        "automountServiceAccountToken",
        "containers",
        "enableServiceLinks",
        "restartPolicy",
        "securityContext",
        "terminationGracePeriodSeconds",
        "volumes",
    }
    assert variables[-1]["name"] == TOKEN


@pytest.mark.parametrize("name", ["KG_AUTH_TOKEN", "KERNEL_UID", "JUPYTER_PATH", "EG_X", "a-b", "a.b"])
def test_a_variable_that_steers_the_gateway_is_refused_in_one_sentence(name):
    """JK2, EC17: no pod is made; training is not concerned."""
    fault = env_fault(trainer(env=[{"name": "A", "value": "1"}, {"name": name, "value": "0"}]))
    assert fault == (
        f"spec.env has {name!r}, which a notebook cannot have: allowed are names of letters, digits and _ that do "
        "not begin with KG_, EG_, KERNEL_, JUPYTER_"
    )
    assert env_fault(trainer(env=[{"name": "KERNELS", "value": "1"}])) == ""


# -- when there is one


def as_pod(manifest, **changes):
    metadata = {**manifest["metadata"], "uid": "pod-uid"}
    return msgspec.convert({**manifest, "metadata": metadata, **changes}, Pod)


def test_it_is_no_member():
    """JK2: nothing of the training sees it, so nothing waits for it."""
    pod = as_pod(manifest(trainer()))
    assert member_of(pod) is None
    assert pods_by_member([pod], UID) == {}


def test_losses_in_a_row_are_met_later_and_later():
    pauses = [pause_after(count) for count in range(14)]
    assert pauses[:4] == [0, 0, FIRST_PAUSE, 2 * FIRST_PAUSE]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


def test_a_pod_on_a_lost_node_keeps_its_name():
    of = trainer()
    pods = [as_pod(manifest(of, name)) for name in ("t-notebook", "t-notebook-1")]
    assert free_name(of, []) == "t-notebook"
    assert free_name(of, pods) == "t-notebook-2"
    assert free_name(of, pods[1:]) == "t-notebook"


class Events:
    def __init__(self):
        self.seen = []

    def event(self, obj, *, type, reason, message):
        self.seen.append((reason, message))


class Case:
    """The reconciler on an API server in memory."""

    def __init__(self):
        self.clock = SimClock()
        self.api = Api(self.clock)
        self.looked = []
        self.edit()
        self.lead()

    def lead(self):
        self.events = Events()
        self.pods_cache = Cached(self.api, PODS, Pod)
        self.reconciler = NotebookReconciler(
            client=self.api,
            trainers=Cached(self.api, TRAINERS),
            pods=self.pods_cache,
            events=self.events,
            clock=self.clock,
            settings=Settings(),
            look_at_trainer=self.looked.append,
        )

    def edit(self, **changes):
        self.api.log.put(TRAINERS, stored(**changes))

    @property
    def refusal(self):
        found = self.api.log.get(TRAINERS, KEY)
        return self.reconciler.refusal(found["metadata"]["uid"] if found is not None else UID)

    async def passes(self, count=3):
        for _ in range(count):
            result = await self.reconciler.reconcile(Request(KEY))
            self.kubelet()
        return result

    def kubelet(self):
        for pod in self.api.log.objects(PODS):
            if pod["metadata"].get("deletionTimestamp"):
                self.api.log.delete(PODS, ObjectKey(KEY.namespace, pod["metadata"]["name"]))
            elif "status" not in pod:
                self.report(pod, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})

    def report(self, pod, status):
        self.api.log.put(PODS, {**pod, "status": status})

    def pods(self):
        return self.api.log.objects(PODS)

    def names(self):
        return [pod["metadata"]["name"] for pod in self.pods()]

    def lose(self):
        (pod,) = self.pods()
        self.api.log.delete(PODS, ObjectKey(KEY.namespace, pod["metadata"]["name"]))


@pytest.fixture
def case():
    return Case()


async def test_one_pod_is_made_while_training_runs_and_then_costs_nothing(case):
    """ST7: no request while it is as it should be."""
    assert await case.passes() is None
    assert case.names() == ["t-notebook"]
    assert case.api.writes == [("create", "Pod", "t-notebook")]


async def test_it_takes_no_place_that_a_member_needs(case):
    """JK2: made when all members are at work, and kept when some are replaced."""
    case.edit(members="Preparing")
    await case.passes()
    assert case.names() == []
    case.edit()
    await case.passes()
    case.edit(members="Preparing")
    await case.passes()
    assert case.names() == ["t-notebook"]


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Suspended"},
        {"suspend": True},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"deleted": True},
        {"notebook": None},
        {"managedBy": "example.com/other"},
        {"env": [{"name": "KERNEL_UID", "value": "0"}]},
    ],
)
async def test_it_goes_when_it_is_not_wanted_any_more_and_no_other_comes(case, change):
    await case.passes()
    case.edit(**change)
    await case.passes(5)
    assert case.names() == []
    assert case.api.writes[1:] == [("delete", "Pod", "t-notebook")]
    assert case.events.seen == []


async def test_a_changed_field_replaces_it_at_once_and_is_no_loss(case):
    await case.passes()
    case.edit(notebook={"kernelName": "ir"})
    await case.passes()
    (pod,) = case.pods()
    variables = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert variables["KG_DEFAULT_KERNEL_NAME"] == "ir"
    assert case.events.seen == []


async def test_a_change_elsewhere_in_the_spec_leaves_it_alone(case):
    """Kernels have state, which a new pod would lose."""
    await case.passes()
    case.edit(epochs=5, env=[{"name": "A", "value": "2"}], generation=2)
    await case.passes()
    assert len(case.api.writes) == 1


async def test_a_lost_pod_is_replaced_at_once_and_the_next_ones_later(case):
    """Bounded: one try in a pause that grows; told by one Event each."""
    await case.passes()
    case.lose()
    await case.passes()
    assert case.names() == ["t-notebook"]
    case.lose()
    result = await case.passes()
    assert case.names() == []
    assert result.requeue_after == pytest.approx(FIRST_PAUSE)
    case.clock.advance(FIRST_PAUSE)
    await case.passes()
    assert case.names() == ["t-notebook"]
    assert case.events.seen == [
        ("NotebookLost", "pod t-notebook was lost (deleted), and its kernels with it; another one comes"),
        (
            "NotebookLost",
            "pod t-notebook was lost (deleted), and its kernels with it; another one comes in 10 s",
        ),
    ]


async def test_losses_of_long_ago_are_forgotten(case):
    for _ in range(3):
        await case.passes()
        case.clock.advance(STEADY)
        case.lose()
        await case.passes()
        assert case.names() == ["t-notebook"]


async def test_an_evicted_pod_is_deleted_and_replaced(case):
    await case.passes()
    case.report(case.pods()[0], {"phase": "Failed", "reason": "Evicted"})
    await case.passes()
    assert case.names() == ["t-notebook"]
    assert case.pods()[0]["status"]["phase"] == "Running"
    assert [reason for reason, _ in case.events.seen] == ["NotebookLost"]
    assert "(Evicted)" in case.events.seen[0][1]


async def test_a_pod_that_cannot_go_is_not_waited_for(case):
    """Its node is lost, so it keeps the name; there is one that lives."""
    await case.passes()
    (pod,) = case.pods()
    pod["metadata"]["deletionTimestamp"] = format_time(case.clock.utcnow())
    case.api.log.put(PODS, pod)
    await case.reconciler.reconcile(Request(KEY))
    assert case.names() == ["t-notebook", "t-notebook-1"]
    before = len(case.api.writes)
    await case.reconciler.reconcile(Request(KEY))
    assert len(case.api.writes) == before


async def test_a_cache_that_lags_makes_no_second_pod(case):
    """R1, RL2: the name is the Trainer's."""
    case.pods_cache.freeze()
    await case.passes()
    assert case.names() == ["t-notebook"]
    case.pods_cache.thaw()
    await case.passes()
    assert case.names() == ["t-notebook"]
    assert case.looked == []


async def test_of_two_that_live_the_older_one_stays(case):
    await case.passes()
    case.clock.advance(5)
    of = Trainer.read(case.api.log.get(TRAINERS, KEY))
    await case.api.create(PODS, manifest(of, "t-notebook-1"), namespace=KEY.namespace)
    case.kubelet()
    await case.passes()
    assert case.names() == ["t-notebook"]


async def test_another_leader_goes_on_with_the_pod_that_is_there(case):
    await case.passes()
    case.lead()
    await case.passes()
    assert case.names() == ["t-notebook"]
    assert len(case.api.writes) == 1


async def test_a_pod_of_somebody_else_with_the_name_is_left_alone(case):
    """TN5: and the Trainer tells of it."""
    foreign = {"metadata": {"name": "t-notebook", "labels": {}}, "spec": {}}
    await case.api.create(PODS, foreign, namespace=KEY.namespace)
    result = await case.passes(1)
    assert "belongs to somebody else" in case.refusal
    assert result.requeue_after == pytest.approx(FIRST_PAUSE)
    assert case.looked == [KEY]
    await case.passes(4)
    assert case.api.writes == [("create", "Pod", "t-notebook")]
    case.lose()
    case.clock.advance(FIRST_PAUSE)
    await case.passes()
    assert case.refusal == ""
    assert case.looked == [KEY, KEY]


async def test_what_the_api_server_refuses_is_tried_later_and_said(case):
    """TN9: a quota or an admission hook refuses; the next tries come later and later."""
    case.api.planned += [
        Forbidden("exceeded quota: pods", status=403, reason="Forbidden"),
        Invalid("no", status=422, reason="Invalid"),
    ]
    await case.passes(1)
    assert case.refusal == "the API server refuses pod t-notebook: exceeded quota: pods"
    case.clock.advance(FIRST_PAUSE)
    result = await case.passes(1)
    assert result.requeue_after == pytest.approx(2 * FIRST_PAUSE)
    case.clock.advance(2 * FIRST_PAUSE)
    await case.passes()
    assert case.names() == ["t-notebook"]
    assert case.refusal == ""


async def test_nothing_is_tried_in_a_namespace_that_ends(case):
    """EC7."""
    refusal = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    ends = Forbidden("x", status=403, reason="Forbidden", status_object=refusal)
    case.api.planned.append(ends)
    await case.passes(1)
    assert case.refusal == ""


async def test_a_trainer_that_is_gone_is_forgotten(case):
    await case.passes()
    case.api.log.delete(TRAINERS, KEY)
    assert await case.passes() is None
    assert case.refusal == ""


def test_only_what_can_make_or_end_a_notebook_is_looked_at():
    """ST7: progress of thousands of Trainers wakes nobody."""
    without, running = stored(notebook=None), stored()
    assert not concerns_notebook(without, stored(notebook=None, phase="Suspended"))
    assert not concerns_notebook(running, {**running, "status": {**running["status"], "globalStep": 7}})
    assert concerns_notebook(None, running)
    assert concerns_notebook(running, stored(phase="Suspended"))
    assert concerns_notebook(stored(members="Preparing"), running)
    assert concerns_notebook(running, without)
    assert concerns_notebook(running, stored(deleted=True))
    assert concerns_notebook(running, None)


# -- what is told of it


def container(**state):
    return {"containerStatuses": [{"name": "notebook", **state}]}


def told(pod=None, *, refusal="", before=(), **changes):
    """Return the condition and the Events of a pass."""
    of = trainer(**changes)
    of.status.conditions = before
    observed = Observed(
        trainer=of,
        profile=None,
        pods={},
        agents={},
        nodes={},
        checkpoints=(),
        now=NOW,
        notebook=view([pod], UID) if pod is not None else None,
        notebook_refusal=refusal,
    )
    draft = Draft(observed, of.status.model_copy(deep=True))
    phase.conditions(draft)
    follow(draft)
    found = next((each for each in draft.status.conditions if each.type == CONDITION), None)
    events = [action.reason for action in draft.actions if isinstance(action, EmitEvent)]
    return found, events, draft.status.conditions


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
NO_SECRET = container(
    state={"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "t-notebook" not found'}}
)
NO_IMAGE = container(state={"waiting": {"reason": "ImagePullBackOff", "message": "x"}})
CRASHES = container(
    restartCount=2,
    state={"waiting": {"reason": "CrashLoopBackOff"}},
    lastState={"terminated": {"exitCode": 1, "message": "Traceback\nthe image has no gateway\n"}},
)


@pytest.mark.parametrize(
    ("status", "value", "reason", "words", "event"),
    [
        (READY, "True", "Serving", "`kubectl trainer notebook t` opens it", "NotebookReady"),
        (NO_SECRET, "False", "TokenMissing", "Secret t-notebook with key token", "NotebookTokenMissing"),
        (NO_IMAGE, "False", "ImageUnavailable", "cannot get image image:1", "NotebookImageUnavailable"),
        (CRASHES, "False", "GatewayFails", "ended: the image has no gateway", "NotebookGatewayFails"),
        ({"phase": "Pending"}, "False", "Starting", "", None),
    ],
)
def test_the_condition_tells_state_and_remedy_and_an_event_tells_once(status, value, reason, words, event):
    """CR7, EV1, TN3: a missing Secret is known from the status of the pod."""
    pod = as_pod(manifest(trainer()), status=status)
    found, events, conditions = told(pod)
    assert (found.status, found.reason) == (value, reason)
    assert words in found.message
    assert events == [event] * (event is not None)
    again, events, _ = told(pod, before=conditions)
    assert again == found
    assert events == []


@pytest.mark.parametrize(
    ("changes", "refusal", "reason"),
    [
        ({"members": "Preparing"}, "", "WaitsForTraining"),
        ({}, "", "Creating"),
        ({}, "pod t-notebook exists and belongs to somebody else", "Refused"),
        ({"env": [{"name": "KG_X", "value": "1"}]}, "", "VariableRefused"),
        ({"phase": "Succeeded"}, "", "Succeeded"),
        ({"suspend": True}, "", "Suspended"),
    ],
)
def test_without_a_pod_the_condition_says_why(changes, refusal, reason):
    found, _, _ = told(refusal=refusal, **changes)
    assert (found.status, found.reason) == ("False", reason)


def test_a_trainer_that_never_asked_has_no_condition():
    """ST7: and one whose field was removed keeps it as false."""
    assert told(notebook=None)[0] is None
    _, _, conditions = told(as_pod(manifest(trainer()), status=READY))
    found, events, _ = told(notebook=None, before=conditions)
    assert (found.status, found.reason, events) == ("False", "NotConfigured", [])


def test_the_pod_of_another_trainer_is_not_ours():
    """TN5."""
    pod = manifest(trainer())
    pod["metadata"]["ownerReferences"][0]["uid"] = "other"
    assert view([as_pod(pod, status=READY)], UID) is None
    assert view([as_pod(manifest(trainer()), status=READY)], UID) == NotebookView("t-notebook", ready=True)
