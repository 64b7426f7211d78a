"""The recovery ladder: what each further failure of a member is met with."""

from datetime import timedelta

import pytest

from simulation.cluster import START, Cluster, trainer
from simulation.views import OTHER, WORKER, active, observed, pod, with_status
from trainer_operator.api.status import Phase, RecoveryStatus, Rung
from trainer_operator.topology.beat import Exit
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import Failure, FailureClass
from trainer_operator.trainer.ladder import climb, repeats


def draft(*, now=START, step=10, **status):
    made = active("worker:0-1", world=2, phase=Phase.RUNNING, global_step=step, **status)
    of = with_status(trainer(workers=2, backoff_limit=50), made)
    return Draft(observed(of=of, pods=[(WORKER, pod()), (OTHER, pod(OTHER))], now=now), of.status)


def crash(member=WORKER, *, kind=FailureClass.APP, **changes):
    fields = {"exit_code": 1, "pod_gone": False, **changes}
    return Failure(member, "0/boot/1", kind, "ProcessExited", "it ended", **fields)


def rungs(*failures, at, **changes):
    """Rungs of failures of one member at given minutes, each with progress before it."""
    made, found = draft(**changes), []
    for failure, minute in zip(failures, at, strict=True):
        made.observed = observed(
            of=made.observed.trainer,
            pods=[(WORKER, pod()), (OTHER, pod(OTHER))],
            now=START + timedelta(minutes=minute),
        )
        found += [step.rung for step in climb(made, [failure])]
    return found


def test_every_second_failure_in_half_an_hour_is_met_with_more():
    """RC6."""
    assert rungs(*[crash()] * 8, at=range(8)) == [
        Rung.PROCESS,
        Rung.POD,
        Rung.POD,
        Rung.NODE,
        Rung.NODE,
        Rung.GROUP,
        Rung.GROUP,
        Rung.GROUP,
    ]


def test_a_quiet_half_hour_leads_back_to_the_first_rung():
    """RC6, RC2."""
    assert rungs(crash(), crash(), crash(), at=[0, 10, 45]) == [Rung.PROCESS, Rung.POD, Rung.PROCESS]


def test_the_second_stall_is_met_with_another_node():
    """SL4."""
    stalled = crash(kind=FailureClass.STALL)
    assert rungs(stalled, stalled, at=[0, 20]) == [Rung.PROCESS, Rung.NODE]


def test_a_pod_that_is_gone_begins_on_the_rung_of_pods():
    """RC6: there is no process to restart."""
    assert rungs(crash(pod_gone=True), at=[0]) == [Rung.POD]


def test_disruptions_do_not_climb():
    """RC3, FT18: ten preemptions are nobody's fault."""
    lost = crash(kind=FailureClass.DISRUPTION, pod_gone=True)
    made = draft()
    for _ in range(10):
        assert climb(made, [lost])[0].rung is Rung.POD
    assert made.status.members == []


def test_of_processes_that_ended_together_the_killed_one_is_to_blame():
    """RC1: the others lost their peer."""
    made = draft()
    climb(made, [crash(WORKER), crash(OTHER, exit_code=137)])
    assert [(entry.index, entry.rung_failures) for entry in made.status.members] == [(1, 1)]


def test_three_restarts_without_progress_lead_to_the_next_rung_whoever_failed():
    """RC6."""
    made = draft(step=10, recovery=RecoveryStatus(step=10, without_progress=2))
    assert climb(made, [crash()])[0].rung is Rung.POD


def test_the_rung_of_nodes_keeps_away_from_the_node():
    """RC6, row "node" of RC."""
    made = draft()
    steps = [climb(made, [crash()])[0] for _ in range(4)]
    assert [step.failure.node for step in steps] == ["", "", "", "node-worker-0"]
    assert [step.failure.pod_gone for step in steps] == [False, True, True, True]


@pytest.mark.parametrize(("progress", "exhausted"), [(True, False), (False, True)])
def test_a_training_is_given_up_only_when_new_pods_for_all_brought_no_progress(progress, exhausted):
    """RC6: the rung after the whole group is Failed."""
    made = draft(step=11 if progress else 10, recovery=RecoveryStatus(step=10))
    entry = made.records.entry(WORKER)
    entry.rung, entry.rung_failures, entry.rung_since = Rung.GROUP, 1, START
    assert climb(made, [crash()])[0].exhausted is exhausted


# -- the same failure at the same step


def fingerprints(*pairs):
    """What ends the Trainer after failures with these fingerprints and steps, one after the other."""
    made, ended = draft(), []
    for fingerprint, step in pairs:
        recovery = RecoveryStatus()
        ended.append(repeats(made, [crash(fingerprint=fingerprint, step=step)], recovery) is not None)
        made.status.recovery = recovery
    return ended


@pytest.mark.parametrize(
    ("pairs", "ended"),
    [
        ([("ValueError@load:7", 5)] * 3, [False, False, True]),
        ([("ValueError@load:7", 5), ("ValueError@load:7", 6), ("ValueError@load:7", 5)], [False] * 3),
        ([("ValueError@load:7", 5), ("KeyError@load:9", 5), ("ValueError@load:7", 5)], [False] * 3),
        ([("", 5)] * 5, [False] * 5),
        ([("E@f:1", 5), ("", 5), ("E@f:1", 5), ("E@f:1", 5)], [False, False, False, True]),
    ],
    ids=["same", "other step", "other place", "bare exit codes", "a bare exit in between"],
)
def test_the_same_failure_at_the_same_step_three_times_is_deterministic(pairs, ended):
    """RC5."""
    assert fingerprints(*pairs) == ended


# -- the ladder in a whole decision


def crash_again_and_again(cluster, times, *, fingerprint=None):
    for _ in range(times):
        for _ in range(400):
            cluster.reconcile()
            cluster.tick()
            if cluster.trainer.status.phase is Phase.FAILED or cluster.crash(MemberId("worker", 1)):
                break
        if fingerprint is not None and (agent := cluster.agents.get(MemberId("worker", 1))):
            agent.exit = Exit(code=1, step=agent.step, fingerprint=fingerprint)
    cluster.reconcile()
    return cluster.trainer.status


def test_a_member_that_fails_again_and_again_gets_a_new_pod_then_all_do():
    """RC6, RC8: read from the status, as the next leader would."""
    cluster = Cluster(trainer(workers=2, epochs=100, backoff_limit=50))
    status = crash_again_and_again(cluster, 6)
    assert {entry.index: (entry.attempt, entry.rung) for entry in status.members} == {
        0: (1, None),
        1: (5, Rung.GROUP),
    }
    assert status.excluded_nodes
    assert (status.failures, status.restarts) == (6, 6)
    told = [message for reason, message in cluster.events if reason == "ProcessExited"]
    for message, how in zip(
        told,
        ["in place", "in a new pod", "in a new pod", "on another node", "on another node", "all members"],
        strict=True,
    ):
        assert how in message


def test_a_deterministic_failure_ends_the_trainer_and_says_what_to_do():
    """RC5."""
    cluster = Cluster(trainer(workers=2, epochs=100, backoff_limit=50))
    cluster.settings = cluster.settings
    for _ in range(3):
        while not cluster.crash(MemberId("worker", 1)):
            cluster.reconcile()
            cluster.tick()
        cluster.agents[MemberId("worker", 1)].step = 3
        cluster.agents[MemberId("worker", 1)].exit = Exit(code=1, step=3, fingerprint="ValueError@load:7")
        cluster.reconcile()
    status = cluster.trainer.status
    assert (status.phase, status.reason) == (Phase.FAILED, "DeterministicFailure")
    assert "ValueError@load:7" in status.message
    assert "correct the program" in status.message
