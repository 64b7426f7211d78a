"""The janitor's pod: when there is one, what it is made of, and that it is no member."""

import json
from pathlib import Path

import pytest

from runtime.objects import PODS, ObjectKey
from simulation.world import KEY, Operator, World, one_pass, request
from simulation.world import run as run_to_end
from trainer_operator.api.resources import CHECKPOINTS
from trainer_operator.api.status import Phase
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.beat import janitor_of
from trainer_operator.topology.members import JANITOR
from trainer_operator.trainer.janitor import (
    FIRST_PAUSE,
    IDLE,
    LIMIT,
    LONGEST_PAUSE,
    Move,
    janitor_manifest,
    next_move,
    pause_after,
)
from trainer_operator.trainer.views import PodView, Settings

GOLDEN = Path(__file__).parents[3] / "golden"
NAME = "t-janitor-0"
RUNNING = PodView(NAME, "uid-pod", 0, phase="Running")
LEAVING = PodView(NAME, "uid-pod", 0, phase="Running", terminating=True)
ENDED = PodView(NAME, "uid-pod", 0, phase="Failed")


# -- when there is one


@pytest.mark.parametrize(
    ("wanted", "pod", "age", "idle", "pause", "move"),
    [
        (False, None, 0, 99, -1, Move()),
        (True, None, 0, 0, -1, Move("create", again=LIMIT)),
        (True, None, 0, 0, 40, Move(again=40)),
        (True, RUNNING, 10, 0, -1, Move(again=LIMIT - 10)),
        (False, RUNNING, 10, 0.5, -1, Move(again=IDLE - 0.5)),
        (False, RUNNING, 10, IDLE, -1, Move("delete")),
        (True, RUNNING, LIMIT, 0, -1, Move("delete", unfinished=True)),
        (True, ENDED, 10, 0, -1, Move("delete", unfinished=True)),
        (False, ENDED, 10, 0, -1, Move("delete")),
        (True, LEAVING, 10, 0, -1, Move()),
    ],
)
def test_the_pod_exists_while_something_is_wanted_of_it(wanted, pod, age, idle, pause, move):
    """CS5: made for work, gone after it, never longer than the limit, and never a second one beside the first."""
    assert next_move(wanted=wanted, pod=pod, age=age, idle=idle, pause=pause) == move


def test_janitors_that_fail_come_less_and_less_often():
    """CS5: a store that is gone costs a pod an hour."""
    pauses = [pause_after(failures) for failures in range(12)]
    assert pauses[:3] == [0, FIRST_PAUSE, 2 * FIRST_PAUSE]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


# -- what it is made of


def made(**checkpoint):
    spec = {
        "epochs": 3,
        "image": "image:1",
        "command": ["python3", "train.py"],
        "checkpoint": {"bucket": "pvc-backups", "prefix": "team", **checkpoint},
        "topology": {
            "workers": 1,
            "podSpec": {
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                "volumeMounts": [{"name": "data", "mountPath": "/srv"}],
                "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
            },
        },
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    metadata = {"name": "t", "namespace": "default", "uid": "0123456789"}
    trainer = Trainer.read({"metadata": metadata, "spec": spec})
    return janitor_manifest(trainer, Settings(operator_image="operator:1", agent_ca="PEM"))


def test_the_manifest_is_the_one_on_record():
    """PS1, TN1: the operator's image as the members' user, with the store and nothing else of theirs."""
    assert made() == json.loads((GOLDEN / "janitor_pod.json").read_text())


def test_keys_of_a_bucket_are_mounted_and_never_read_by_the_operator():
    """TN1, TN3."""
    pod = made(bucket="s3://training/runs", credentialsSecret="keys")
    assert {"name": "trainer-store", "secret": {"secretName": "keys"}} in pod["spec"]["volumes"]
    assert "persistentVolumeClaim" not in json.dumps(pod)


def test_a_directory_may_be_a_volume_that_the_user_mounts_there():
    """BK: file:/// is a path in the containers."""
    pod = made(bucket="file:///srv/checkpoints")
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["trainer-agent", "trainer-token", "data"]


# -- the whole


class Case:
    """A Trainer that has ended, and whose agents have left."""

    def __init__(self):
        self.world = World(epochs=6)
        self.operators = []

    async def end(self):
        self.operators = await run_to_end(self.world)
        return self

    @property
    def operator(self):
        return self.operators[-1]

    async def run(self, seconds):
        seen = []
        for _ in range(seconds):
            await one_pass(self.world, self.operators)
            seen.append([pod["metadata"]["name"] for pod in self.world.pods() if "janitor" in str(pod)])
            self.world.tick(self.operator)
        return seen

    def committed(self):
        return [c for c in self.world.checkpoints() if c["status"]["state"] == "Committed"]

    def keep(self, number):
        self.world.edit(checkpoint={"bucket": "claim", "intervalMinutes": 0.1, "maxRetention": number})

    def janitor(self):
        return self.world.api.log.get(PODS, ObjectKey(KEY.namespace, NAME))


@pytest.fixture
async def case():
    return await Case().end()


async def test_retention_after_the_end_is_carried_out_by_one_pod_that_goes_again(case):
    """GC1, CS5: nobody of the members is left."""
    assert len(case.committed()) == 2
    case.keep(1)
    seen = await case.run(40)
    assert max(map(len, seen)) == 1
    assert len(case.committed()) == 1
    assert case.janitor() is None
    assert case.operator.members.view(janitor_of(case.world.uid)) == {}
    assert case.world.status.phase is Phase.SUCCEEDED


async def test_a_trainer_at_rest_without_work_has_no_janitor_and_costs_no_write(case):
    """ST7, TR05."""
    await case.run(20)
    case.world.api.writes.clear()
    assert not any(await case.run(20))
    assert case.world.api.writes == []


async def test_a_new_leader_waits_for_agents_that_may_still_be_there(case):
    """TX4: and then goes on with the pod that it finds."""
    case.keep(1)
    case.operators.append(Operator(case.world))
    assert not any(await case.run(10))
    assert any(await case.run(30))
    assert len(case.committed()) == 1


async def test_a_new_leader_goes_on_with_the_pod_that_is_there(case):
    """RC8: the pod's name is the Trainer's, so there are never two."""
    case.keep(1)
    case.world._store = lambda args: None  # it does not answer
    while case.janitor() is None:
        await case.run(1)
    uid = case.janitor()["metadata"]["uid"]
    case.operators.append(Operator(case.world))
    await case.run(20)
    assert case.janitor()["metadata"]["uid"] == uid
    del case.world._store
    await case.run(5)
    assert len(case.committed()) == 1


async def test_a_janitor_that_does_not_finish_is_replaced_later_and_said_why(case):
    """CS5: a store that is gone does not keep a pod for ever."""
    case.keep(1)
    case.world._store = lambda args: "Unreachable: the store does not answer"
    while case.janitor() is None:
        await case.run(1)
    await case.run(3)
    case.world.clock.advance(LIMIT)
    await case.run(2)
    assert case.janitor() is None
    events = dict(case.operator.events.seen)
    assert events["StoreWorkUnfinished"] == (
        "the janitor ended before its work did: Unreachable: the store does not answer; "
        "the next one comes in 60 s"
    )
    del case.world._store
    assert not any(await case.run(30))
    assert any(await case.run(60))
    assert len(case.committed()) == 1


async def test_a_deleted_checkpoint_object_takes_its_order_back(case):
    """CK1: nothing is done for an object that is gone."""
    case.keep(1)
    case.world._store = lambda args: None
    while case.janitor() is None:
        await case.run(1)
    for checkpoint in case.world.checkpoints():
        case.world.api.log.delete(CHECKPOINTS, ObjectKey(KEY.namespace, checkpoint["metadata"]["name"]))
        key = ObjectKey(KEY.namespace, checkpoint["metadata"]["name"])
        await case.operator.checkpoint.reconcile(request(key))
    assert case.operator.members.declared(janitor_of(case.world.uid), JANITOR) == []
    await case.run(6)
    assert case.janitor() is None
