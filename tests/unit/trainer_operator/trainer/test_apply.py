"""The applier: what counts as done, and what is tried although something else failed."""

import pytest

from runtime.client.errors import Forbidden, InternalError
from runtime.objects import PODS, SERVICES, ObjectKey
from simulation.world import KEY, Operator, World
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.apply import Applier, NameTaken
from trainer_operator.trainer.draft import (
    CloseAgents,
    CreateCheckpoint,
    CreatePod,
    CreateService,
    DeletePod,
    DeleteTrainer,
    EmitEvent,
    MarkCorrupt,
    PinCheckpoint,
)
from trainer_operator.trainer.views import Settings

W0, W1 = MemberId("worker", 0), MemberId("worker", 1)


class Case:
    def __init__(self):
        self.world = World()
        self.operator = Operator(self.world)
        self.authority = "PEM"
        self.applier = Applier(
            self.world.api,
            self.operator.members,
            self.operator.events,
            Settings(),
            barriers=self.operator.barriers,
            authority=lambda: self.authority,
        )

    async def act(self, *actions):
        await self.applier.actions(self.world.trainer, actions)

    def pod(self, name="t-worker-0"):
        return self.world.api.log.get(PODS, ObjectKey(KEY.namespace, name))


@pytest.fixture
def case():
    return Case()


async def test_a_pod_gets_the_authority_of_the_moment_it_is_made(case):
    """TR43, CT5: certificates come late on a fresh installation, and are exchanged later."""
    for authority, member in (("first", W0), ("second", W1)):
        case.authority = authority
        await case.act(CreatePod(member, 0))
        (container,) = case.pod(f"t-{member}")["spec"]["containers"]
        assert {"name": "TRAINER_OPERATOR_CA", "value": authority} in container["env"]


async def test_creating_twice_makes_one(case):
    """R1, TR24."""
    await case.act(CreatePod(W0, 0))
    uid = case.pod()["metadata"]["uid"]
    await case.act(CreatePod(W0, 0))
    assert case.pod()["metadata"]["uid"] == uid


async def test_deleting_what_is_gone_is_done(case):
    """TR04."""
    await case.act(DeletePod("t-worker-0", "uid"))


async def test_a_delete_never_hits_a_successor_of_the_same_name(case):
    """TR25: it names the uid that it means."""
    await case.act(CreatePod(W0, 0))
    await case.act(DeletePod("t-worker-0", "uid-of-its-predecessor"))
    assert "deletionTimestamp" not in case.pod()["metadata"]
    await case.act(DeletePod("t-worker-0", case.pod()["metadata"]["uid"]))
    assert "deletionTimestamp" in case.pod()["metadata"]


async def test_a_delete_is_seen_in_the_cache_before_the_next_decision(case):
    """R2, TR20: marked is what the cache must show, not asked for."""
    await case.act(CreatePod(W0, 0))
    barrier = case.operator.barriers[PODS]
    assert barrier.is_open(case.world.uid)
    case.operator.pods.freeze()
    await case.act(DeletePod("t-worker-0", case.pod()["metadata"]["uid"]))
    assert not barrier.is_open(case.world.uid)
    case.operator.pods.thaw()
    assert barrier.is_open(case.world.uid)


async def test_an_action_that_fails_does_not_keep_the_others_from_being_tried(case):
    """TR04, TR19."""
    await case.act(CreatePod(W0, 0), CreatePod(W1, 0))
    first, second = (case.pod(name)["metadata"]["uid"] for name in ("t-worker-0", "t-worker-1"))
    case.world.api.planned.append(InternalError("no", status=500))
    with pytest.raises(InternalError):
        await case.act(
            DeletePod("t-worker-0", first),
            DeletePod("t-worker-1", second),
            CreateCheckpoint("t-c00001", "Interval", pause=False),
            EmitEvent("Normal", "Said", "anyway"),
        )
    assert "deletionTimestamp" in case.pod("t-worker-1")["metadata"]
    assert case.world.api.log.get(CHECKPOINTS, ObjectKey(KEY.namespace, "t-c00001")) is not None
    assert ("Said", "anyway") in case.operator.events.seen


async def test_a_pod_is_deleted_after_its_successor_was_created(case):
    """RC8: a member that failed waits for one request less."""
    await case.act(CreatePod(W0, 0))
    writes = len(case.world.api.writes)
    await case.act(DeletePod("t-worker-0", case.pod()["metadata"]["uid"]), CreatePod(W0, 1))
    assert case.world.api.writes[writes:] == [
        ("create", "Pod", "t-worker-0-a1"),
        ("delete", "Pod", "t-worker-0"),
    ]


async def test_a_pod_is_deleted_although_its_successor_is_refused(case):
    """TR04, TR19: a quota that counts pods may have room for it only then."""
    await case.act(CreatePod(W0, 0))
    case.world.api.planned.append(Forbidden("exceeded quota", status=403, reason="Forbidden"))
    with pytest.raises(Forbidden):
        await case.act(DeletePod("t-worker-0", case.pod()["metadata"]["uid"]), CreatePod(W0, 1))
    assert "deletionTimestamp" in case.pod()["metadata"]


async def test_a_refused_create_is_said(case):
    """TR40."""
    case.world.api.planned.append(Forbidden("exceeded quota", status=403, reason="Forbidden"))
    with pytest.raises(Forbidden):
        await case.act(CreatePod(W0, 0))
    assert [reason for reason, _ in case.operator.events.seen] == ["CreateFailed"]
    assert "exceeded quota" in case.operator.events.seen[0][1]


async def test_a_quota_that_is_used_up_costs_few_requests(case):
    """R7: one batch tells, hundreds are spared."""
    case.world.api.planned.extend([Forbidden("exceeded quota", status=403)] * 1000)
    with pytest.raises(Forbidden):
        await case.act(*[CreatePod(MemberId("worker", n), 0) for n in range(500)])
    assert len(case.world.api.planned) >= 990


async def test_a_checkpoint_is_marked_corrupt_without_touching_the_rest(case):
    """RS2, CS6."""
    await case.act(CreateCheckpoint("t-c00001", "Interval", pause=False))
    found = case.world.api.log.get(CHECKPOINTS, ObjectKey(KEY.namespace, "t-c00001"))
    case.world.api.log.put(CHECKPOINTS, {**found, "status": {"state": "Committed", "health": "Healthy"}})
    await case.act(MarkCorrupt("t-c00001", "a chunk is damaged"), MarkCorrupt("gone", "no matter"))
    after = case.world.api.log.get(CHECKPOINTS, ObjectKey(KEY.namespace, "t-c00001"))
    assert after["status"] == {"state": "Committed", "health": "Corrupt"}


async def test_agents_are_closed_without_a_request(case):
    """AG7."""
    case.operator.members.declare(case.world.uid, "trainer", {})
    await case.act(CloseAgents())
    assert case.operator.members.reply(case.world.uid, W0, term=0)["close"] is True
    assert case.world.api.writes == []


async def test_a_trainer_whose_time_is_over_is_deleted_once(case):
    """TR05."""
    trainer = case.world.trainer
    await case.applier.actions(trainer, [DeleteTrainer()])
    assert case.world.api.log.get(TRAINERS, KEY) is None
    await case.applier.actions(trainer, [DeleteTrainer()])


async def test_the_service_is_made_once_however_often_it_is_asked_for(case):
    """R1, TR24: the cache may not have it yet, or this process may not be the one that made it."""
    key = ObjectKey(KEY.namespace, "trainer-t")
    await case.act(CreateService())
    made = case.world.api.log.get(SERVICES, key)["metadata"]
    await case.act(CreateService())
    assert case.world.api.log.get(SERVICES, key)["metadata"]["uid"] == made["uid"]
    assert made["ownerReferences"][0]["uid"] == case.world.uid


async def test_a_service_of_somebody_else_is_said_and_left_alone_and_the_pods_are_there(case):
    """TR22: found by owner, never by label or name alone."""
    foreign = {
        "metadata": {"name": "trainer-t", "namespace": KEY.namespace},
        "spec": {"clusterIP": "10.0.0.1"},
    }
    case.world.api.log.put(SERVICES, foreign)
    with pytest.raises(NameTaken, match="Service trainer-t exists and belongs to somebody else"):
        await case.act(CreateService(), CreatePod(W0, 0))
    assert case.pod() is not None
    assert case.world.api.log.get(SERVICES, ObjectKey(KEY.namespace, "trainer-t"))["spec"] == foreign["spec"]


def terminating():
    status = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    return Forbidden("is being terminated", status=403, reason="Forbidden", status_object=status)


async def test_nothing_is_created_in_a_namespace_that_is_being_deleted(case):
    """EC7: no error, so no back-off loop; and no further request, however many pods are gone."""
    case.world.api.planned.append(terminating())
    await case.act(CreatePod(W0, 0))
    await case.act(CreatePod(W0, 1), CreatePod(W1, 0), CreateCheckpoint("t-c00001", "Interval", pause=False))
    assert (case.world.api.writes, case.operator.events.seen) == ([], [])


async def test_what_is_remembered_of_a_trainer_goes_with_it(case):
    """TR21: nothing grows for ever."""
    case.world.api.planned.append(terminating())
    await case.act(CreatePod(W0, 0))
    case.applier.forget(case.world.uid)
    await case.act(CreatePod(W0, 0))
    assert case.world.api.writes


@pytest.mark.parametrize(
    ("status", "pins"),
    [
        ({"state": "Committed", "pins": ["t-c00002"]}, ["t-c00002", "restore/3"]),
        ({"state": "Committed", "pins": ["restore/3"]}, ["restore/3"]),
        ({"state": "Committed", "markedAt": "2026-01-01T00:00:00Z"}, None),
        ({"state": "GarbageCollected"}, None),
    ],
    ids=["beside others", "twice", "marked", "gone"],
)
async def test_a_pin_needs_a_committed_checkpoint_that_is_not_marked(case, status, pins):
    """GC2, RS4, MG1."""
    await case.act(CreateCheckpoint("t-c00001", "OnDemand", False))
    key = ObjectKey(KEY.namespace, "t-c00001")
    case.world.api.log.put(CHECKPOINTS, {**case.world.api.log.get(CHECKPOINTS, key), "status": status})
    await case.act(PinCheckpoint("t-c00001", "restore/3"))
    assert case.world.api.log.get(CHECKPOINTS, key)["status"].get("pins") == pins


async def test_a_checkpoint_that_is_gone_is_not_pinned(case):
    """RS4: the next pass chooses another one."""
    await case.act(PinCheckpoint("t-c00009", "restore/3"))
    assert case.world.api.writes == []
