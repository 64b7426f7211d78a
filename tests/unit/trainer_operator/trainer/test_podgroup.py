"""PodGroups of other schedulers: when there is one, what it says, and what waits for it."""

import pytest

from simulation.cluster import trainer
from simulation.views import OTHER, WORKER, active, observed, pod, with_spec, with_status
from trainer_operator.api.pod import Resources
from trainer_operator.api.status import MembershipPhase, Phase
from trainer_operator.api.topology import PodSettings, Roles, RoleSettings, Topology
from trainer_operator.api.trainer import Elastic, Scheduling
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import CreatePod, DeletePod, DeletePodGroup, WritePodGroup
from trainer_operator.trainer.podgroup import (
    SCHEDULER_PLUGINS,
    VOLCANO,
    group_manifest,
    group_spec,
    group_view,
    kind_of,
)
from trainer_operator.trainer.pods import QUEUE_LABEL, owner_reference, pod_manifest
from trainer_operator.trainer.views import Settings

OWNER = {"uid": "uid-t"}
BOTH = [(WORKER, pod()), (OTHER, pod(OTHER))]


def of_scheduler(name="volcano", *, workers=2, gang=True, queue="research", **spec):
    scheduling = Scheduling(scheduler_name=name, gang=gang, queue=queue)
    return with_spec(trainer(workers=workers), scheduling=scheduling, **spec)


def group(of, *, phase="", message="", **spec):
    kind = kind_of(of)
    conditions = [{"type": "Unschedulable", "status": "True", "message": message}] if message else []
    stored = {
        "metadata": {"name": "t", "uid": "uid-g"},
        "spec": {**group_spec(of, kind), **spec},
        "status": {"phase": phase, "conditions": conditions},
    }
    return group_view(kind.resource, stored)


def running(of):
    return with_status(of, active("worker:0-1", world=2, phase=Phase.RUNNING))


def of_kind(decision, kind):
    return [action for action in decision.actions if isinstance(action, kind)]


def scheduled(decision):
    (found,) = [each for each in decision.status.conditions if each.type == "Scheduled"]
    return str(found.status), found.reason, found.message


# -- which scheduler knows groups


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("volcano", VOLCANO),
        ("scheduler-plugins", SCHEDULER_PLUGINS),
        ("scheduler-plugins-scheduler", SCHEDULER_PLUGINS),
        ("default-scheduler", None),
        (None, None),
    ],
)
def test_the_scheduler_that_is_named_decides_the_kind(name, kind):
    """Placement mode External."""
    assert kind_of(of_scheduler(name)) is kind
    assert kind_of(of_scheduler(name, gang=False)) is None


def test_pods_of_volcano_name_their_group_and_leave_the_queue_to_it():
    """TR23: ours win over a user's."""
    template = PodSettings(annotations={"scheduling.k8s.io/group-name": "other", "note": "kept"})
    of = of_scheduler(topology=Topology(workers=2, pod_spec=template))
    metadata = pod_manifest(of, WORKER, 0, Settings())["metadata"]
    assert metadata["annotations"] == {"scheduling.k8s.io/group-name": "t", "note": "kept"}
    assert QUEUE_LABEL not in metadata["labels"]


def test_pods_of_scheduler_plugins_name_their_group_and_keep_the_queue_of_kueue():
    """Its PodGroups have no queue."""
    metadata = pod_manifest(of_scheduler("scheduler-plugins"), WORKER, 0, Settings())["metadata"]
    assert metadata["labels"]["scheduling.x-k8s.io/pod-group"] == "t"
    assert metadata["labels"][QUEUE_LABEL] == "research"
    assert metadata["annotations"] is None


# -- what it says


def test_the_group_has_all_members_what_they_take_and_the_queue():
    """GS1: standbys too; a resource with a limit only is requested in full."""
    topology = Topology(
        workers=4,
        parameter_servers=1,
        replication_factor=2,
        roles=Roles(ps=RoleSettings(resources=Resources(requests={"cpu": "500m", "memory": "1Gi"}))),
        pod_spec=PodSettings(priority_class_name="urgent"),
    )
    each = Resources(requests={"cpu": 20, "memory": "40Gi"}, limits={"nvidia.com/gpu": 8, "cpu": 40})
    made = group_manifest(of_scheduler(topology=topology, resources=each), VOLCANO, OWNER)
    assert (made["apiVersion"], made["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert made["metadata"]["name"] == "t"
    assert made["metadata"]["labels"] == {"trainer-name": "t"}
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["spec"] == {
        "minMember": 6,
        "minResources": {"cpu": "81", "memory": str(162 * 2**30), "nvidia.com/gpu": "32"},
        "queue": "research",
        "priorityClassName": "urgent",
    }


def test_scheduler_plugins_is_not_told_the_sum_since_room_would_not_wake_its_pods():
    """GS1: its check of the sum comes before the filters whose refusals are looked at again when room comes."""
    each = Resources(requests={"cpu": 20})
    of = of_scheduler("scheduler-plugins", resources=each)
    assert group_spec(of, SCHEDULER_PLUGINS) == {"minMember": 2}
    assert "minResources" in group_spec(of, VOLCANO)


def test_what_is_not_said_is_left_to_the_scheduler():
    """Volcano's own defaults hold."""
    assert group_spec(of_scheduler(queue=None), VOLCANO) == {"minMember": 2}
    assert group_spec(of_scheduler("scheduler-plugins"), SCHEDULER_PLUGINS) == {"minMember": 2}


@pytest.mark.parametrize(("fewest", "least"), [(1, 1), (3, 3), (4, 4)])
def test_workers_that_an_elastic_trainer_spares_are_not_waited_for(fewest, least):
    """GS1: minimum = elastic.minWorkers."""
    of = of_scheduler(workers=4, elastic=Elastic(min_workers=fewest))
    assert group_spec(of, VOLCANO)["minMember"] == least


# -- when there is one


def test_the_group_comes_before_any_pod_of_volcano():
    """TR39: its webhook refuses pods whose group is not there."""
    decision = decide(observed(of=of_scheduler()))
    assert of_kind(decision, WritePodGroup) == [WritePodGroup(exists=False)]
    assert of_kind(decision, CreatePod) == []
    assert scheduled(decision) == (
        "False",
        "PodGroupWaits",
        "pods are made once volcano admits PodGroup t to queue research",
    )


def test_scheduler_plugins_wants_the_pods_with_the_group():
    """It places a group whose pods are all there."""
    decision = decide(observed(of=of_scheduler("scheduler-plugins")))
    assert [type(action) for action in decision.actions] == [CreatePod, CreatePod, WritePodGroup]


@pytest.mark.parametrize(("phase", "pods"), [("", 0), ("Pending", 0), ("Inqueue", 2), ("Running", 2)])
def test_pods_are_made_once_the_queue_lets_the_group_in(phase, pods):
    """TR39: the change of its phase is what wakes; nothing is written meanwhile."""
    of = of_scheduler()
    of = with_status(of, decide(observed(of=of)).status)
    decision = decide(observed(of=of, pod_group=group(of, phase=phase, message="queue is full")))
    assert len(of_kind(decision, CreatePod)) == pods
    assert of_kind(decision, WritePodGroup) == []
    if not pods:
        assert scheduled(decision)[2].endswith("admits PodGroup t to queue research: queue is full")


def test_one_that_waits_is_left_alone():
    """TR39, TR17: no timestamp that pokes itself, and no timer."""
    of = of_scheduler()
    of = with_status(of, decide(observed(of=of)).status)
    pending = group(of, phase="Pending")
    of = with_status(of, decide(observed(of=of, pod_group=pending)).status)
    decision = decide(observed(of=of, pod_group=pending))
    assert (decision.status, decision.actions, decision.wake) == (of.status, (), None)


def test_the_group_is_kept_while_one_pod_is_replaced():
    """TR38: also while Volcano calls the group Pending for the pod that is missing."""
    of = running(of_scheduler())
    one_gone = decide(observed(of=of, pods=[(WORKER, pod())], pod_group=group(of, phase="Pending")))
    assert one_gone.status.disruptions == 1
    assert of_kind(one_gone, WritePodGroup) == of_kind(one_gone, DeletePodGroup) == []
    assert of_kind(one_gone, DeletePod) == []
    of = with_status(of, one_gone.status)
    later = decide(observed(of=of, pods=[(WORKER, pod())], pod_group=group(of, phase="Pending")))
    made = {(a.member, a.attempt) for a in (*one_gone.actions, *later.actions) if isinstance(a, CreatePod)}
    assert made == {(OTHER, 1)}


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_the_group_goes_with_the_end(phase):
    """TR37: once it is gone nothing is done any more."""
    of = of_scheduler()
    ended = with_status(of, active("worker:0-1", world=2, phase=phase, completion_time=observed().now))
    decision = decide(observed(of=ended, pods=BOTH, pod_group=group(of, phase="Running")))
    assert of_kind(decision, DeletePodGroup) == [DeletePodGroup(VOLCANO.resource, "t", "uid-g")]
    assert of_kind(decide(observed(of=ended, pods=BOTH)), DeletePodGroup) == []


def test_the_group_goes_with_a_suspend_and_comes_back_with_the_resume():
    """TR37."""
    of = of_scheduler(suspend=True)
    resting = decide(observed(of=of, pod_group=group(of, phase="Running")))
    assert resting.status.phase is Phase.SUSPENDED
    assert of_kind(resting, DeletePodGroup) == [DeletePodGroup(VOLCANO.resource, "t", "uid-g")]
    asleep = with_status(of, resting.status)
    assert decide(observed(of=asleep)).actions == ()
    resumed = decide(observed(of=with_status(of_scheduler(), asleep.status)))
    assert of_kind(resumed, WritePodGroup) == [WritePodGroup(exists=False)]
    assert of_kind(resumed, CreatePod) == []


def test_a_gang_that_gives_its_nodes_back_keeps_its_group():
    """TR38: it is tried again, under the same name."""
    of = of_scheduler(pending_timeout_seconds=5)
    status = active("", world=0)
    status.membership.phase = MembershipPhase.PREPARING
    waits = (OTHER, pod(OTHER, node="", phase="Pending", created="2025-12-31T23:00:00Z"))
    found = group(of, phase="Unknown")
    decision = decide(observed(of=with_status(of, status), pods=[(WORKER, pod()), waits], pod_group=found))
    assert decision.status.gang is not None
    assert of_kind(decision, DeletePodGroup) == of_kind(decision, WritePodGroup) == []


def test_a_change_of_members_or_queue_changes_the_group():
    """TR38: in place; what the scheduler added to it stays."""
    of = running(of_scheduler())
    for changed in (of_scheduler(workers=3), of_scheduler(queue="other")):
        now = with_status(changed, of.status)
        decision = decide(observed(of=now, pods=BOTH, pod_group=group(of, phase="Running")))
        assert WritePodGroup(exists=True) in decision.actions
    same = decide(observed(of=of, pods=BOTH, pod_group=group(of, phase="Running", minTaskMember={})))
    assert of_kind(same, WritePodGroup) == []


def test_another_scheduler_needs_no_group_any_more():
    """TR37: the fields of a suspended Trainer may change, and a group is never left behind."""
    found = group(of_scheduler(), phase="Running")
    decision = decide(observed(of=running(of_scheduler("default-scheduler")), pods=BOTH, pod_group=found))
    assert of_kind(decision, DeletePodGroup) == [DeletePodGroup(VOLCANO.resource, "t", "uid-g")]


# -- where the kind is not installed


@pytest.mark.parametrize("name", ["volcano", "scheduler-plugins"])
def test_without_the_kind_pods_are_placed_one_by_one_and_a_condition_says_so(name):
    """SC11: the operator's own gang start holds."""
    of = of_scheduler(name)
    decision = decide(observed(of=of, pod_groups_fault="is not installed"))
    assert [type(action) for action in decision.actions] == [CreatePod, CreatePod]
    kind = kind_of(of).resource
    assert scheduled(decision) == (
        "False",
        "PodGroupsUnavailable",
        f"scheduler {name} places gangs by {kind}, which is not installed: pods are placed one by one",
    )
    assert decision.wake <= 30.0
    placed = decide(
        observed(of=with_status(of, decision.status), pods=BOTH, pod_groups_fault="is not installed")
    )
    assert scheduled(placed)[:2] == ("True", "Placed")


def test_the_trainer_controls_its_group():
    """TR22."""
    (owner,) = group_manifest(of_scheduler(), VOLCANO, owner_reference(trainer()))["metadata"][
        "ownerReferences"
    ]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Trainer", "uid-t", True)
