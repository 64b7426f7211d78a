"""A lost node and what becomes of its members' volumes, with the real attach-detach controller (FT15).

Storage is the double of `csidouble`; everything else is real. `NODE_LOSS_RESULT=file make integration
ARGS=tests/integration/trainer/test_lost_volumes.py` writes the times that were measured.
"""

import json
import os
import signal
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from urllib.parse import urlsplit

import pytest

from integration.trainer.conftest import ROOT, USER
from integration.trainer.csidouble import CLASS, CSIDouble
from trainer_operator.devcluster import certificates
from trainer_operator.devcluster.adminapi import AdminAPI
from trainer_operator.devcluster.certificates import CertificateAuthority

pytestmark = pytest.mark.timeout(900)

LOST, SHUNNED, SPARE = "node-0", "node-1", "node-2"
ROOMS = {"a": LOST, "b": SHUNNED}
RIGHTS = str(ROOT / "deploy" / "components" / "node-recovery" / "rbac.yaml")
CONTROLLER = "system:serviceaccount:kube-system:attachdetach-controller"
TAINT = "node.kubernetes.io/out-of-service"
PATIENCE = 240
"""Seconds; a minute until a node counts as down, another until the controller looks at its attachments again."""


@pytest.fixture(scope="module")
def storage(world, tmp_path_factory):
    folder = world.cluster.folder / "control-plane" / "certificates"
    authority = CertificateAuthority.open(folder)
    pair = authority.issue_client(
        "csi-double", groups=certificates.ADMIN_GROUPS, folder=tmp_path_factory.mktemp("client")
    )
    port = urlsplit(world.cluster.state().url).port
    api = AdminAPI(port, authority=authority.certificate_file, client=pair)
    with CSIDouble(api, tmp_path_factory.mktemp("csi"), (LOST, SHUNNED, SPARE)) as double:
        yield double


@pytest.fixture(scope="module")
def figures():
    """What was measured, in seconds since the node's end."""
    found = {}
    yield found
    print(f"\nnode loss: {json.dumps(found)}")
    if path := os.environ.get("NODE_LOSS_RESULT"):
        with open(path, "w") as file:
            json.dump(found, file, indent=2)
            file.write("\n")


@pytest.fixture
def rooms(world, until):
    """Nodes that a test may switch off; what is placed in a room can go to the spare node once that is opened."""
    kinds = [f"example.com/room-{room}" for room in ROOMS]
    for kind, node in zip(kinds, ROOMS.values(), strict=True):
        world.kubectl("label", "node", node, f"{kind}=yes")
    rooms = Rooms(world, kinds)
    yield rooms
    for node in list(rooms.off):
        rooms.switch_on(node)
    for node in (LOST, SHUNNED, SPARE):
        until(lambda name=node: is_ready(world, name), 60, f"{node} ready again")
        world.kubectl("label", "node", node, *(f"{kind}-" for kind in kinds))


@dataclass
class Rooms:
    """Power and doors."""

    world: object
    kinds: list[str]
    off: dict[str, float] = field(default_factory=dict)

    def open_spare(self):
        self.world.kubectl("label", "node", SPARE, *(f"{kind}=yes" for kind in self.kinds))

    def switch_off(self, node):
        self.off[node] = time.monotonic()
        self.world.cluster.kill_node(node)

    def switch_on(self, node):
        del self.off[node]
        self.world.cluster.start_node(node)


@pytest.fixture
def node_recovery(world, until):
    """The operators with the rights of deploy/components/node-recovery, and told to use them."""
    world.kubectl("apply", "-f", RIGHTS)
    restart(world, until, lambda command: [*command, "--node-recovery"])
    yield
    restart(world, until, lambda command: [word for word in command if word != "--node-recovery"])
    world.kubectl("delete", "-f", RIGHTS)


def restart(world, until, change):
    for operator in world.operators:
        if operator.process.exit_code() is None:
            operator.kill(signal.SIGTERM)
        operator.command = change(operator.command)
        operator.start()
    for operator in world.operators:
        operator.wait_ready()
    until(world.leader, 90, "a leader")


def is_ready(world, node):
    conditions = world.get("node", node)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def train(job, name, recovery=None, *, room="a"):
    """Make a Trainer of one worker, which signs the visitors' book on its volume and goes on."""
    topology = {
        "workers": 1,
        "roles": {"worker": {"nodeSelector": {f"example.com/room-{room}": "yes"}}},
    }
    script = "exec sleep 900"
    if recovery is not None:
        topology["storage"] = {"size": "1Mi", "storageClassName": CLASS, "recovery": recovery}
        script = f'echo "$TRAINER_POD_NAME" >> "$TRAINER_VOLUME_DIR/visitors"; {script}'
    return job.make(name, command=["sh", "-c", script], topology=topology)


def first(trainer):
    """Name of the first pod of its worker, and of that pod's claim."""
    return f"{trainer.name}-worker-0"


def successor(trainer):
    """Name of the newest pod of a later attempt; empty while there is none."""
    later = [name for name in trainer.pods() if name != first(trainer)]
    return max(later, key=lambda name: int(name.rpartition("-a")[2]), default="")


def is_running(trainer, pod):
    found = trainer.pods().get(pod) or {"status": {}}
    statuses = found["status"].get("containerStatuses") or [{}]
    return "running" in statuses[0].get("state", {})


def begin(storage, until, trainers):
    """Wait until all of them train, which is when those with a volume have signed; return their volumes by name."""
    for trainer in trainers:
        until(lambda t=trainer: is_running(t, first(t)), 60, f"{trainer.name} runs", tell=trainer.pods)
    volumes = {}
    for trainer in trainers:
        if trainer.object()["spec"]["topology"].get("storage"):
            volume = volumes[trainer.name] = volume_of(trainer, first(trainer))
            wait_signed(storage, until, volume, trainer, first(trainer))
    return volumes


def has_recovered(trainer):
    return is_running(trainer, successor(trainer))


def volume_of(trainer, claim):
    return trainer.world.get("pvc", claim, "-n", trainer.namespace)["spec"]["volumeName"]


def wait_signed(storage, until, volume, trainer, *names):
    """Wait until exactly these pods have trained on a volume, one after the other."""

    def tell():
        return {"wanted": names, "signed": storage.words(volume), "status": trainer.status()}

    def is_signed():  # a process that restarts in its pod signs again
        return [name for name, _ in groupby(storage.words(volume))] == list(names)

    until(is_signed, 60, f"the pods that trained on {trainer.name}'s volume", tell=tell)


def stuck(trainer):
    """The condition OldPodStuck: status and reason."""
    found = [each for each in trainer.status().get("conditions", ()) if each["type"] == "OldPodStuck"]
    return tuple((each["status"], each["reason"]) for each in found)


def messages(trainer, reason):
    events = trainer.world.get("events", "-n", trainer.namespace)["items"]
    return [each["message"] for each in events if each["reason"] == reason]


def is_forced(trainer):
    pod = trainer.pods().get(first(trainer))
    return pod is None or pod["metadata"].get("deletionGracePeriodSeconds") == 0


def had_one_holder(acts):
    """Whether each attachment of a volume came after the detachment from the node before."""
    holder = None
    for verb, node in acts:
        if verb == "attach" and holder in {None, node}:
            holder = node
        elif verb == "detach" and holder == node:
            holder = None
        else:
            return False
    return True


def test_without_the_rights_a_stuck_pod_says_why_and_nothing_is_forced(
    job, storage, rooms, figures, world, until
):
    """FT15, ND1, ND2, ND3, RB4, LT3: who needs no old volume trains on; who needs one waits for the node."""
    plain = train(job, "plain")
    fresh = train(job, "fresh", "FreshVolume")
    waiting = {name: train(job, name.lower(), name) for name in ("Reattach", "OutOfService", "Wait")}
    volumes = begin(storage, until, (plain, fresh, *waiting.values()))
    rooms.open_spare()
    log, mark = world.audit, world.audit.mark()
    rooms.switch_off(LOST)

    since = rooms.off[LOST]
    for trainer, name in ((plain, "noVolume"), (fresh, "freshVolume")):
        until(lambda t=trainer: successor(t), 90, "a replacement", tell=trainer.status)
        figures[name] = {"replaced": round(time.monotonic() - since, 1)}
    for trainer, name in ((plain, "noVolume"), (fresh, "freshVolume")):
        until(lambda t=trainer: has_recovered(t), 90, "it runs elsewhere", tell=trainer.pods)
        figures[name]["running"] = round(time.monotonic() - since, 1)
    claim = successor(fresh)
    wait_signed(storage, until, volume_of(fresh, claim), fresh, claim)  # it began empty
    reasons = {"Reattach": "NodeRecoveryNotEnabled", "OutOfService": "NodeRecoveryNotEnabled"}
    for name, trainer in waiting.items():
        expected = ("True", reasons.get(name, "WaitsForNode"))
        until(lambda t=trainer, e=expected: stuck(t) == (e,), 60, f"{expected}", tell=trainer.status)
        until(lambda t=trainer: successor(t), 60, "a replacement", tell=trainer.status)
        assert not has_recovered(trainer)
        assert not is_forced(trainer)
        assert storage.acts_on(volumes[trainer.name]) == [("attach", LOST)]
    for trainer in (plain, fresh):
        until(lambda t=trainer: stuck(t) == (("True", "NodeLost"),), 60, "NodeLost", tell=trainer.status)

    rooms.switch_on(LOST)
    for name, trainer in waiting.items():
        until(lambda t=trainer: has_recovered(t), 90, f"{name} goes on with its volume", tell=trainer.pods)
        wait_signed(storage, until, volumes[trainer.name], trainer, first(trainer), successor(trainer))
        assert had_one_holder(storage.acts_on(volumes[trainer.name]))
    assert forced(log.since(mark)) == []


def test_with_the_rights_each_policy_gets_its_volume_as_it_says(
    job, storage, rooms, figures, node_recovery, world, until
):
    """FT15, ND2, ND3, ND4, RB4, LT4: in ND4's order, never from another live pod, and undone when the node is back."""
    reattach, outofservice = train(job, "reattach", "Reattach"), train(job, "out", "OutOfService", room="b")
    fresh, wait = train(job, "fresh", "FreshVolume"), train(job, "wait", "Wait")
    shared = train(job, "shared", "Reattach")
    everyone = (reattach, outofservice, fresh, wait, shared)
    volumes = begin(storage, until, everyone)
    world.apply(bystander(shared))
    until(lambda: bystander_phase(shared) == "Running", 60, "the bystander runs")
    rooms.open_spare()
    log, mark, began = world.audit, world.audit.mark(), datetime.now(UTC)
    for node in (LOST, SHUNNED):
        rooms.switch_off(node)

    waiting = {"outOfService": (outofservice, SHUNNED), "reattach": (reattach, LOST)}
    until(lambda: has_recovered(fresh), 90, "FreshVolume waits for nobody", tell=fresh.pods)
    until(lambda: multi_attach(reattach), 90, "the controller to refuse a second node", tell=reattach.pods)
    deadline = time.monotonic() + PATIENCE
    while waiting:
        for name, (trainer, node) in list(waiting.items()):
            if has_recovered(trainer):
                figures[name] = {"running": round(time.monotonic() - rooms.off[node], 1)}
                del waiting[name]
        assert time.monotonic() < deadline, {key: each.status() for key, (each, _) in waiting.items()}
        time.sleep(0.2)

    for trainer in (reattach, outofservice):
        wait_signed(storage, until, volumes[trainer.name], trainer, first(trainer), successor(trainer))
        assert had_one_holder(storage.acts_on(volumes[trainer.name]))
        until(lambda t=trainer: stuck(t) == (("False", "None"),), 60, "nothing is stuck", tell=trainer.status)
    until(lambda: first(fresh) not in fresh.pods(), 60, "the old pod to be forced", tell=fresh.status)
    events = log.since(mark)
    order = steps(events, reattach, volumes["reattach"])
    assert [step for step, _ in order] == ["force", "detach", "attach"], order
    assert (order[0][1] - began).total_seconds() > 50, "forced before the Lease had rested for a minute"
    assert steps(events, outofservice, volumes["out"])[-1][0] == "attach"
    assert (SHUNNED, "taint") in forced(events)
    assert {name for name, verb in forced(events) if verb == "force"} == {first(reattach), first(fresh)}

    until(lambda: messages(shared, "NodeRecoveryRefused"), 60, "the refusal to be told", tell=shared.status)
    assert "is used by pod bystander" in messages(shared, "NodeRecoveryRefused")[0]
    for trainer, reason in ((shared, "Forcing"), (wait, "WaitsForNode")):
        until(lambda t=trainer, r=reason: stuck(t) == (("True", r),), 60, reason, tell=trainer.status)
        assert not is_forced(trainer)
        assert storage.acts_on(volumes[trainer.name]) == [("attach", LOST)]

    for node in (LOST, SHUNNED):
        rooms.switch_on(node)
    until(lambda: has_recovered(wait), 90, "Wait goes on when its node is back", tell=wait.pods)
    wait_signed(storage, until, volumes["wait"], wait, first(wait), successor(wait))
    until(lambda: TAINT not in taints(world, SHUNNED), 60, "the taint to be removed")


def bystander(trainer):
    """A pod of somebody else that uses the claim of a member on the same node."""
    claim = {"name": "shared", "persistentVolumeClaim": {"claimName": first(trainer)}}
    container = {
        "name": "main",
        "image": "none",
        "command": ["sleep", "900"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bystander", "namespace": trainer.namespace},
        "spec": {
            "nodeName": LOST,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [claim],
        },
    }


def bystander_phase(trainer):
    return trainer.world.get("pod", "bystander", "-n", trainer.namespace)["status"].get("phase")


def multi_attach(trainer):
    return any("Multi-Attach error" in text for text in messages(trainer, "FailedAttachVolume"))


def taints(world, node):
    return [taint["key"] for taint in world.get("node", node)["spec"].get("taints") or ()]


def forced(events):
    """What the operator did by force: pods deleted without grace, attachments deleted, nodes tainted."""
    found = []
    for event in events:
        if event.user.username != USER or not event.ok:
            continue
        target, body = event.object_ref, event.request_object or {}
        if (event.verb, target.resource) == ("delete", "pods") and body.get("gracePeriodSeconds") == 0:
            found.append((target.name, "force"))
        elif (event.verb, target.resource) == ("delete", "volumeattachments"):
            found.append((target.name, "detach"))
        elif (event.verb, target.resource) == ("patch", "nodes"):
            found.append((target.name, "taint"))
    return found


def steps(events, trainer, volume):
    """What was done for a volume to change its node, and when: each request once, in the order of the log."""
    found = {}
    for event in events:
        target, body = event.object_ref, event.response_object or {}
        if not event.ok:
            continue
        if target.resource == "pods" and (target.namespace, target.name) == (
            trainer.namespace,
            first(trainer),
        ):
            if event.verb == "delete" and (event.request_object or {}).get("gracePeriodSeconds") == 0:
                found.setdefault("force", event.stage_timestamp)
        elif target.resource == "volumeattachments":
            source = ((body.get("spec") or {}).get("source") or {}).get("persistentVolumeName")
            if source != volume:
                continue
            if event.verb == "delete" and event.user.username == USER:
                found.setdefault("detach", event.stage_timestamp)
            elif event.verb == "create" and event.user.username == CONTROLLER:
                found.setdefault("attach", event.stage_timestamp)
    return list(found.items())
