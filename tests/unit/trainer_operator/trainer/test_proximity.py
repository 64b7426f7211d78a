"""topologyPolicy: what it makes of pods, who waits because of it, and when a gang may go elsewhere."""

import pytest

from simulation.cluster import Cluster, trainer
from simulation.views import OTHER, WORKER, active, agent, observed, pod, with_spec, with_status
from trainer_operator.api.affinity import Affinity
from trainer_operator.api.names import PLACEMENT_LABEL
from trainer_operator.api.status import AllocationStatus, MembershipPhase, Phase
from trainer_operator.api.topology import Roles, RoleSettings
from trainer_operator.api.trainer import Scheduling, TopologyPolicy
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import CreatePod, DeletePod, EmitEvent
from trainer_operator.trainer.levels import BUILT_IN, Level
from trainer_operator.trainer.pods import pod_manifest
from trainer_operator.trainer.records import Records
from trainer_operator.trainer.views import Settings

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
LEVELS = (Level("rack", (RACK,)), *BUILT_IN)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def near(required=None, preferred=None, *, workers=2, **spec):
    policy = TopologyPolicy(required=required, preferred=preferred)
    return with_spec(trainer(workers=workers), scheduling=Scheduling(topology_policy=policy), **spec)


def first_pass(of, *, labels=(HOST, ZONE), levels=LEVELS):
    return decide(observed(of=of, node_labels=frozenset(labels), levels=levels))


def started(of, *, labels=(HOST, ZONE, RACK), levels=LEVELS):
    decision = first_pass(of, labels=labels, levels=levels)
    assert decision.status.start_time is not None, decision.status.message
    return with_status(of, decision.status)


def affinity(of, member=WORKER):
    return pod_manifest(of, member, 0, Settings())["spec"]["affinity"]


def term(key, placement="uid-t-0"):
    labels = {"trainer-name": "t", PLACEMENT_LABEL: placement}
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def scheduled(status):
    (found,) = [each for each in status.conditions if each.type == "Scheduled"]
    return str(found.status), found.reason, found.message


# -- what pods are told


def test_pods_are_near_to_the_pods_of_their_own_placement():
    """TP6, GP2: required binds, preferred weighs as much as can be."""
    of = started(near("rack", "node"))
    made = pod_manifest(of, WORKER, 0, Settings())
    assert made["metadata"]["labels"][PLACEMENT_LABEL] == "uid-t-0"
    assert made["spec"]["affinity"] == {
        "podAffinity": {
            REQUIRED: [term(RACK)],
            PREFERRED: [{"weight": 100, "podAffinityTerm": term(HOST)}],
        }
    }


@pytest.mark.parametrize("field", ["required", "preferred"])
def test_one_level_makes_one_term(field):
    """TP6."""
    of = started(near(**{field: "zone"}))
    (kind,) = affinity(of)["podAffinity"]
    assert kind == {"required": REQUIRED, "preferred": PREFERRED}[field]


def test_without_a_policy_pods_are_placed_as_before():
    """TP6: neither label nor affinity."""
    for of in (started(trainer()), started(near())):
        made = pod_manifest(of, WORKER, 0, Settings())
        assert "affinity" not in made["spec"]
        assert PLACEMENT_LABEL not in made["metadata"]["labels"]
        assert of.status.allocation is None


def test_what_the_user_asked_for_is_kept():
    """TN1: node affinity, preferences for pods, and what keeps pods away."""
    theirs = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
        },
        "podAffinity": {
            PREFERRED: [{"weight": 5, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {}}}]
        },
        "podAntiAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": {}}]},
    }
    plain = near("rack", "node")
    topology = plain.spec.topology.model_copy(
        update={"roles": Roles(worker=RoleSettings(affinity=Affinity.read(theirs)))}
    )
    made = affinity(started(with_spec(plain, topology=topology)))
    assert made["nodeAffinity"] == theirs["nodeAffinity"]
    assert made["podAntiAffinity"] == theirs["podAntiAffinity"]
    assert made["podAffinity"][REQUIRED] == [term(RACK)]
    assert [entry["weight"] for entry in made["podAffinity"][PREFERRED]] == [5, 100]


# -- who waits


@pytest.mark.parametrize("field", ["required", "preferred"])
def test_a_name_that_nobody_knows_starts_nothing_and_is_told_once(field):
    """TP5, SC11: a condition and an Event with the names that are known; no pod without the constraint."""
    of = near(**{field: "rack"})
    decision = first_pass(of, levels=BUILT_IN)
    (event,) = decision.actions
    message = (
        f"scheduling.topologyPolicy.{field}: topology level rack is not known, only zone, tier-2, tier-1, tier-0, "
        "nvlink, node; ConfigMap trainer-topology can name others"
    )
    assert (event.type, event.reason, event.message) == ("Warning", "TopologyLevelUnknown", message)
    assert scheduled(decision.status) == ("False", "TopologyLevelUnknown", message)
    assert decision.status.start_time is None
    assert decision.wake == 5.0
    assert first_pass(with_status(of, decision.status), levels=BUILT_IN).actions == ()


def test_it_starts_once_the_level_is_known():
    """TP5: without a change of the Trainer."""
    of = near("rack")
    waiting = with_status(of, first_pass(of).status)
    decision = first_pass(waiting, labels=(HOST, RACK))
    assert {action.member for action in decision.actions if isinstance(action, CreatePod)} == {WORKER, OTHER}
    assert decision.status.message == ""
    assert scheduled(decision.status)[:2] == ("Unknown", "NotSeen")


def test_a_required_level_that_no_node_is_labelled_for_starts_nothing():
    """SC11."""
    status = first_pass(near("tier-0")).status
    assert scheduled(status)[:2] == ("False", "TopologyLevelUnknown")
    assert "levels that nodes have: zone, nvlink, node" in status.message


def test_a_preferred_level_that_no_node_is_labelled_for_falls_back():
    """TP6."""
    of = started(near(preferred="tier-0"), labels=(HOST,))
    assert of.status.allocation.preferred_label == "fabric.topograph.run/tier-0"


def test_levels_that_cannot_be_read_start_nothing():
    """TP5."""
    status = first_pass(near("zone"), levels="ConfigMap trainer-topology cannot be used").status
    assert scheduled(status) == ("False", "TopologyLevelUnknown", "ConfigMap trainer-topology cannot be used")


def test_a_required_nearness_to_other_pods_beside_ours_is_told_instead_of_waiting_for_ever():
    """SC11: the scheduler wants one pod that meets all terms, and there is none."""
    theirs = {"podAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": {}}]}}
    roles = Roles(ps=RoleSettings(affinity=Affinity.read(theirs)))
    plain = near("zone")
    of = with_spec(plain, topology=plain.spec.topology.model_copy(update={"roles": roles}))
    state, reason, message = scheduled(first_pass(of).status)
    assert (state, reason) == ("False", "TopologyConflict")
    assert message.startswith("topology.roles.ps.affinity requires pods nearby")
    assert first_pass(with_spec(of, scheduling=near(preferred="zone").spec.scheduling)).status.start_time


# -- what is kept


def test_what_the_levels_meant_at_the_start_counts_until_the_trainer_is_suspended():
    """GP6: a replacement goes where its gang is, whatever nodes and configuration say by now."""
    of = started(near("rack"))
    later = decide(observed(of=of, levels=(), node_labels=frozenset()))
    assert later.status.allocation == of.status.allocation
    assert later.status.start_time is not None
    resting = decide(observed(of=with_spec(of, suspend=True))).status
    assert (resting.phase, resting.allocation) == (Phase.SUSPENDED, None)


def test_a_trainer_that_started_without_the_labels_goes_on_without_them():
    """TR32: an older operator started it; pods that differ from those that run would not be placed."""
    of = with_status(near("rack"), active("worker:0-1", world=2))
    assert decide(observed(of=of)).status.allocation is None


# -- a new placement


def gang_of(*pods, moved=(), placement=3):
    """Decide for two workers that wait for each other; those that `moved` are at their second attempt."""
    status = active("worker:0-1", world=2, epoch=2)
    status.membership.phase = MembershipPhase.PREPARING
    status.allocation = AllocationStatus(required_label=RACK, placement=placement)
    for member in moved:
        Records(status).move_on(member)
    return decide(observed(of=with_status(near("rack"), status), pods=pods))


def stuck(member, *, placement="uid-t-3"):
    return member, pod(member, terminating=True, placement=placement)


def created(decision):
    return {(a.member, a.attempt) for a in decision.actions if isinstance(a, CreatePod)}


def test_a_replacement_joins_the_placement_of_those_that_live():
    """GP6: the domain that the gang uses is kept."""
    decision = gang_of((WORKER, pod(placement="uid-t-3")), stuck(OTHER), moved=(OTHER,))
    assert decision.status.allocation.placement == 3
    assert created(decision) == {(OTHER, 1)}


def test_pods_that_are_stuck_on_lost_nodes_bind_nobody_to_where_they_are():
    """SC11, TR12: the whole rack is lost, and its pods stay Terminating."""
    decision = gang_of(stuck(WORKER), stuck(OTHER), moved=(WORKER, OTHER))
    assert decision.status.allocation.placement == 4
    assert created(decision) == {(WORKER, 1), (OTHER, 1)}


def test_a_replacement_that_waits_for_room_beside_stuck_pods_is_made_anew():
    """TR12: it was made while the other one still seemed to live."""
    waiting = (WORKER, pod(attempt=1, phase="Pending", node="", placement="uid-t-3"))
    decision = gang_of(waiting, stuck(WORKER), stuck(OTHER), moved=(WORKER, OTHER))
    assert decision.status.allocation.placement == 4
    assert created(decision) == {(WORKER, 2), (OTHER, 1)}
    assert "t-worker-0-a1" in {a.name for a in decision.actions if isinstance(a, DeletePod)}
    assert (decision.status.failures, decision.status.disruptions) == (0, 0)


def test_pods_of_an_older_placement_bind_nobody_so_nothing_is_made_anew_again():
    """TR17: the next pass leaves what it made alone."""
    waiting = [
        (member, pod(member, attempt=1, phase="Pending", node="", placement="uid-t-4"))
        for member in (WORKER, OTHER)
    ]
    decision = gang_of(*waiting, stuck(WORKER), stuck(OTHER), moved=(WORKER, OTHER), placement=4)
    assert decision.status.allocation.placement == 4
    assert created(decision) == set()


# -- a domain without room


DOMAINS = {"node-worker-0": "a", "node-worker-1": "a", "n2": "b", "n3": "c"}


def timed_out(*placed, tried=(), domains=DOMAINS, required=RACK):
    """Decide for two workers that waited for too long; those that are `placed` have a node."""
    status = active("", world=0)
    status.membership.phase = MembershipPhase.PREPARING
    status.allocation = AllocationStatus(required_label=required, placement=0, tried=tried)
    late = {"phase": "Pending", "node": "", "created": "2025-12-31T23:00:00Z"}
    pods = [(each, pod(each, **({} if each in placed else late))) for each in (WORKER, OTHER)]
    return decide(observed(of=with_status(near("rack"), status), pods=pods, domains=domains))


def test_the_next_try_keeps_away_from_the_domain_that_had_no_room():
    """SC10, GS2: the scheduler would choose the same one again."""
    decision = timed_out(WORKER)
    assert decision.status.allocation.tried == ("a",)
    condition = {"key": RACK, "operator": "NotIn", "values": ["a"]}
    again = with_status(near("rack"), decision.status)
    made = affinity(again)
    assert made["nodeAffinity"] == {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}}
    assert made["podAffinity"] == {REQUIRED: [term(RACK)]}


def test_each_of_a_users_alternatives_keeps_away_from_it():
    """TN1."""
    gpu, cpu = ({"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("gpu", "cpu"))
    theirs = Affinity.read({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [gpu, cpu]}}})
    again = with_status(near("rack"), timed_out(WORKER).status)
    roles = Roles(worker=RoleSettings(affinity=theirs))
    again = with_spec(again, topology=again.spec.topology.model_copy(update={"roles": roles}))
    terms = affinity(again)["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [[each["key"] for each in one["matchExpressions"]] for one in terms] == [
        ["gpu", RACK],
        ["cpu", RACK],
    ]


def test_domains_are_tried_one_after_another_until_none_is_left():
    """SC08: then every one is open again, for a gang elsewhere may have ended."""
    assert timed_out(WORKER, tried=("b",)).status.allocation.tried == ("b", "a")
    assert timed_out(WORKER, tried=("b", "c")).status.allocation.tried == ()


def test_a_gang_that_finds_nothing_beside_what_it_tried_has_all_domains_open_again():
    """GS4: those that are left may be of no use to it, and it would wait there for ever."""
    decision = timed_out(tried=("a",))
    assert decision.status.allocation.tried == ()
    assert {action.name for action in decision.actions if isinstance(action, DeletePod)} == {
        "t-worker-0",
        "t-worker-1",
    }
    (event,) = [action for action in decision.actions if isinstance(action, EmitEvent)]
    assert "domains that had no room are open again" in event.message
    assert timed_out().status.gang is None, "its pods tell an autoscaler that nodes are missing"


def test_without_a_required_level_no_domain_is_tried():
    """GS2: a preferred one binds nobody."""
    assert timed_out(WORKER, required=None).status.allocation.tried == ()


def test_what_was_tried_is_forgotten_once_all_train():
    """TR17: a replacement has room beside the others, or none."""
    status = active("worker:0-1", world=2)
    status.allocation = AllocationStatus(required_label=RACK, placement=0, tried=("a",))
    pods = [(each, pod(each)) for each in (WORKER, OTHER)]
    decision = decide(
        observed(of=with_status(near("rack"), status), pods=pods, agents=[agent(), agent(OTHER)])
    )
    assert decision.status.allocation.tried == ()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_bind_nobody(phase):
    """SC11: the scheduler does not count them."""
    ended = (WORKER, pod(phase=phase, placement="uid-t-3"))
    decision = gang_of(ended, moved=(WORKER,))
    assert decision.status.allocation.placement == 3


def test_a_whole_gang_that_is_lost_trains_elsewhere_and_is_charged_for_the_loss_only():
    """TR12, RC3, in the simulation: a rack dies, and its pods stay for ever."""
    cluster = Cluster(started(near("rack", epochs=500)))
    cluster.run_until(lambda: cluster.trainer.status.global_step > 3, at_most=60)
    assert {view.node for _, view in cluster.pods.values()} == {"node-0", "node-1"}
    for number in (0, 1):
        cluster.lose_node(number)
    cluster.run_until(
        lambda: cluster.trainer.status.membership.epoch > 1 and cluster.trainer.status.phase is Phase.RUNNING,
        at_most=200,
    )
    assert {view.node for _, view in cluster.pods.values() if view.alive} <= {"node-2", "node-3"}
    assert cluster.trainer.status.allocation.placement == 1
    assert (cluster.trainer.status.failures, cluster.trainer.status.disruptions) == (0, 1)
