"""Membership under random faults: whatever breaks, the training ends, and every repeated step is on record."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulation.cluster import STEPS_PER_EPOCH, Cluster, rescale, trainer
from trainer_operator.api.status import Phase, TrainerStatus
from trainer_operator.api.trainer import Elastic
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.ranges import parse_members

FAULTS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("crash"), st.integers(0, 4)),
        st.tuples(st.just("crash server"), st.integers(0, 2)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("delete server"), st.integers(0, 2)),
        st.tuples(st.just("scale"), st.integers(1, 4)),
        st.tuples(st.just("lose node"), st.integers(0, 2)),
        st.tuples(st.just("return node"), st.integers(0, 2)),
        st.tuples(st.just("new leader"), st.just(0)),
        st.tuples(st.just("deaf"), st.integers(0, 4)),
        st.tuples(st.just("suspend"), st.integers(1, 5)),
    ),
    max_size=12,
)


def run(cluster: Cluster, faults, *, seconds_at_most: int = 900) -> None:
    """Play the faults, a few seconds apart, then let the training come to its end."""
    seen = cluster.trainer.status
    for kind, number in [*faults, ("wait", 3)]:
        inject(cluster, kind, number)
        for _ in range(number if kind == "wait" else 2):
            seen = one_pass(cluster, seen)
    cluster.down.clear()
    for agent in cluster.agents.values():
        agent.deaf = False
    for _ in range(seconds_at_most):
        seen = one_pass(cluster, seen)
        if seen.phase in {Phase.SUCCEEDED, Phase.FAILED}:
            return
    raise AssertionError(f"not at its end: {seen.dump()}")


def one_pass(cluster: Cluster, before: TrainerStatus) -> TrainerStatus:
    cluster.reconcile()
    after = cluster.trainer.status
    check_progress(before, after)
    cluster.tick()
    return after


def check_progress(before: TrainerStatus, after: TrainerStatus) -> None:
    """ME7, TR02: a step falls only with a recorded rollback; epochs and counters never fall; the end is final."""
    assert after.membership.epoch >= before.membership.epoch
    assert after.membership.ps_epoch >= before.membership.ps_epoch
    assert (after.failures, after.disruptions, after.restarts) >= (
        before.failures,
        before.disruptions,
        before.restarts,
    )
    if after.global_step < before.global_step:
        assert after.rollbacks > before.rollbacks
        assert after.last_rollback is not None
        assert after.last_rollback.to_step == after.global_step
    if before.phase in {Phase.SUCCEEDED, Phase.FAILED}:
        assert after.phase is before.phase


def inject(cluster: Cluster, kind: str, number: int) -> None:
    match kind:
        case "crash":
            cluster.crash(MemberId("worker", number))
        case "crash server":
            cluster.crash(MemberId("ps", number))
        case "delete":
            cluster.delete_pod(MemberId("worker", number))
        case "delete server":
            cluster.delete_pod(MemberId("ps", number))
        case "scale":
            rescale(cluster, number)
        case "room":
            cluster.room = number
        case "lose node":
            cluster.lose_node(number)
        case "return node":
            cluster.down.discard(f"node-{number}")
        case "deaf":
            for agent in cluster.agents.values():
                agent.deaf = agent.member.index == number
        case "new leader":
            cluster.now += timedelta(
                seconds=1
            )  # nothing but status is carried over; the simulation does so always
        case "suspend":
            suspended = cluster.trainer.spec.suspend
            spec = cluster.trainer.spec.model_copy(update={"suspend": not suspended})
            cluster.trainer = cluster.trainer.model_copy(update={"spec": spec})


def resume(cluster: Cluster) -> None:
    spec = cluster.trainer.spec.model_copy(update={"suspend": False})
    cluster.trainer = cluster.trainer.model_copy(update={"spec": spec})


def check_steps(cluster: Cluster, rollbacks: list[tuple[int, int]]) -> None:
    """No step is trained twice within one epoch and psEpoch; what is repeated lies above a recorded rollback."""
    seen: set[tuple[int, int, int]] = set()
    done: dict[int, tuple[int, int]] = {}
    for epoch, servers, step in cluster.trained:
        assert (epoch, servers, step) not in seen
        seen.add((epoch, servers, step))
        if step in done:
            assert any(to < step for _, to in rollbacks), (
                f"step {step} was repeated without a rollback on record"
            )
        done[step] = (epoch, servers)
    assert sorted(done) == list(range(1, max(done) + 1))


@pytest.mark.parametrize(
    ("servers", "soft", "replicas"), [(0, False, 1), (1, False, 1), (2, False, 1), (2, True, 1), (1, True, 2)]
)
@given(faults=FAULTS)
@example(faults=[("wait", 1), ("delete", 0), ("delete", 1)])
@example(faults=[("wait", 2), ("crash server", 0), ("wait", 1), ("suspend", 1)])
@example(faults=[("wait", 2), ("crash server", 0), ("wait", 1), ("crash server", 0), ("lose node", 1)])
@example(faults=[("wait", 1), ("crash", 0), ("delete server", 0), ("delete server", 0)])
@example(faults=[("wait", 3), ("scale", 4), ("crash server", 0), ("scale", 1), ("delete", 0)])
@example(faults=[("wait", 3), ("scale", 4), ("suspend", 1), ("wait", 3), ("suspend", 1), ("scale", 1)])
@example(faults=[("wait", 3), ("scale", 3), ("wait", 3), ("deaf", 1), ("scale", 4), ("crash", 1)])
def test_every_fault_sequence_ends_with_all_steps_trained(servers, soft, replicas, faults):
    """ME3, ME5, ME7, ME8, PSR2, PSR4, RC8, FT01, FT02, FT18: whatever happens, in any order."""
    cluster = Cluster(trainer(servers=servers, workers=2, replicas=replicas), soft=soft)
    rollbacks: list[tuple[int, int]] = []
    original = cluster.reconcile

    def recording():
        before = cluster.trainer.status.rollbacks
        decision = original()
        if cluster.trainer.status.rollbacks > before:
            last = cluster.trainer.status.last_rollback
            rollbacks.append((last.from_step, last.to_step))
        return decision

    cluster.reconcile = recording
    try:
        run(cluster, [*faults, ("wait", 1)], seconds_at_most=0)
    except AssertionError as unfinished:
        if "not at its end" not in str(unfinished):
            raise
    resume(cluster)
    if cluster.trainer.status.phase is not Phase.SUCCEEDED:
        run(cluster, [])
    if cluster.trainer.status.reason == "RecoveryExhausted":  # new pods for all were crashed twice, too (RC6)
        assert sum(kind.startswith("crash") for kind, _ in faults) >= 7
        return
    assert cluster.trainer.status.phase is Phase.SUCCEEDED
    assert cluster.trainer.status.global_step == cluster.trainer.spec.epochs * STEPS_PER_EPOCH
    assert cluster.trainer.status.epochs_completed == cluster.trainer.spec.epochs
    check_steps(cluster, rollbacks)


@given(
    servers=st.integers(1, 2),
    wishes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), min_size=1, max_size=8),
)
@example(servers=1, wishes=[(4, 2), (2, 1), (4, 0), (2, 8)])
def test_a_resize_with_servers_ends_no_process_and_loses_no_step(servers, wishes):
    """ME5, ME6, ME7, ME8, LT7: each step is trained once, by the world of its epoch; survivors keep their processes."""
    cluster = Cluster(trainer(servers=servers, workers=2, epochs=20), soft=True)
    seen = cluster.trainer.status
    for wish, passes in [(2, 6), *wishes]:
        inject(cluster, "scale", wish)
        kept = {m: (a.boot, a.run) for m, a in cluster.agents.items() if m.role == "ps" or m.index == 0}
        for _ in range(passes):
            seen = one_pass(cluster, seen)
        for member, process in kept.items():
            assert (cluster.agents[member].boot, cluster.agents[member].run) == process
    for _ in range(400):
        if seen.phase is Phase.SUCCEEDED:
            break
        seen = one_pass(cluster, seen)
    assert seen.phase is Phase.SUCCEEDED, seen.dump()
    assert (seen.failures, seen.disruptions, seen.restarts, seen.rollbacks) == (0, 0, 0, 0)
    assert [step for _, _, step in cluster.trained] == list(range(1, 20 * STEPS_PER_EPOCH + 1))


ELASTIC_FAULTS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("crash"), st.integers(0, 4)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("scale"), st.integers(2, 5)),
        st.tuples(st.just("room"), st.integers(0, 5)),
    ),
    max_size=10,
)


@pytest.mark.parametrize(("servers", "soft"), [(0, False), (1, False), (1, True)])
@given(faults=ELASTIC_FAULTS)
@example(faults=[("wait", 5), ("room", 2), ("delete", 1), ("wait", 30), ("room", 4), ("wait", 30)])
@example(faults=[("room", 2), ("wait", 30), ("scale", 5), ("wait", 40)])
@example(faults=[("wait", 51), ("delete", 0), ("wait", 3), ("delete", 0)])  # lost with its last step unheard
def test_an_elastic_trainer_goes_on_with_whom_there_is_room_for(servers, soft, faults):
    """ME3, ME6, ME7, ME8: room comes and goes; every step is trained, and no epoch has fewer than the minimum."""
    cluster = Cluster(elastic(servers=servers, workers=4, least=2), soft=soft)
    rollbacks: list[tuple[int, int]] = []
    for kind, number in [*faults, ("room", 1000)]:
        inject(cluster, kind, number)
        for _ in range(number if kind == "wait" else 2):
            watch(cluster, rollbacks)
    for _ in range(900):
        watch(cluster, rollbacks)
        if cluster.trainer.status.phase in {Phase.SUCCEEDED, Phase.FAILED}:
            break
    if cluster.trainer.status.reason == "RecoveryExhausted":
        assert sum(kind == "crash" for kind, _ in faults) >= 7
        return
    assert cluster.trainer.status.phase is Phase.SUCCEEDED, cluster.trainer.status.dump()
    check_steps(cluster, rollbacks)


def elastic(*, servers, workers, least):
    made = trainer(servers=servers, workers=workers)
    return made.model_copy(
        update={"spec": made.spec.model_copy(update={"elastic": Elastic(min_workers=least)})}
    )


def watch(cluster, rollbacks):
    """Make one pass; note rollbacks and check that an active epoch has at least elastic.minWorkers."""
    before = cluster.trainer.status
    after = one_pass(cluster, before)
    if after.rollbacks > before.rollbacks:
        rollbacks.append((after.last_rollback.from_step, after.last_rollback.to_step))
    if after.membership.phase == "Active":
        workers = sum(member.role == "worker" for member in parse_members(after.membership.members))
        assert workers >= min(cluster.trainer.spec.elastic.min_workers, cluster.trainer.spec.topology.workers)


@given(faults=FAULTS, servers=st.integers(0, 1), soft=st.booleans())
def test_a_settled_trainer_writes_nothing(faults, servers, soft):
    """TR17, ST7: without news the status stays the same, to the letter, and nothing is done."""
    cluster = Cluster(trainer(servers=servers, workers=2), soft=soft)
    for kind, number in faults:
        inject(cluster, kind, number)
        cluster.reconcile()
        cluster.tick()
    cluster.reconcile()
    for _ in range(5):
        cluster.reconcile()
    before = cluster.trainer.status.dump()
    decision = cluster.reconcile()
    assert cluster.trainer.status.dump() == before
    assert not [action for action in decision.actions if type(action).__name__ != "CloseAgents"]


@given(crashes=st.lists(st.integers(0, 3), min_size=2, max_size=4, unique=True))
def test_many_ranks_that_fail_together_are_one_restart_and_one_count(crashes):
    """RC1: 1,000 crashed ranks are one restart."""
    cluster = Cluster(trainer(workers=4))
    for _ in range(5):
        cluster.reconcile()
        cluster.tick()
    for index in crashes:
        assert cluster.crash(MemberId("worker", index))
    cluster.reconcile()
    status = cluster.trainer.status
    assert (status.failures, status.restarts, status.membership.epoch) == (1, 1, 2)
