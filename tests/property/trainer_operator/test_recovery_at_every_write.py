"""The operator dies at every write, before and after it took effect; the next one goes on as if nothing had been."""

import asyncio
from dataclasses import dataclass

import pytest

from runtime.client.errors import Conflict, InternalError, TransportError, TransportFault
from simulation.recording import audit_trail
from simulation.world import Operator, World, run
from trainer_operator.api.status import Phase
from trainer_operator.audit.chain import verify
from trainer_operator.topology.members import MemberId

W0, W1 = MemberId("worker", 0), MemberId("worker", 1)


def at(step):
    return lambda world: world.step >= step


def suspended(world):
    return world.status.phase is Phase.SUSPENDED and not world.pods()


def process_crashes():
    return World(), [(at(9), lambda world: world.crash(W1))]


def pod_is_deleted():
    return World(), [(at(9), lambda world: world.delete_pod("t-worker-1"))]


def pod_fails():
    return World(), [(at(9), lambda world: world.fail_pod("t-worker-1"))]


def both_crash():
    return World(), [(at(9), lambda world: world.crash(W0) and world.crash(W1))]


def scaled_up_and_down():
    return World(epochs=4), [(at(4), lambda world: world.scale(3)), (at(16), lambda world: world.scale(1))]


def scaled_without_a_restart():
    return World(epochs=3, soft=True, parameterServers=1), [
        (at(4), lambda world: world.scale(3)),
        (at(16), lambda world: world.scale(1)),
    ]


def suspended_and_resumed():
    return World(epochs=3), [
        (at(7), lambda world: world.edit(suspend=True)),
        (suspended, lambda world: world.edit(suspend=False)),
    ]


def fails_for_good():
    crashes = [(lambda world: world.crash(W0), lambda world: None)] * 4
    return World(epochs=6), crashes


SCENARIOS = [
    process_crashes,
    pod_is_deleted,
    pod_fails,
    both_crash,
    scaled_up_and_down,
    scaled_without_a_restart,
    suspended_and_resumed,
    fails_for_good,
]


@dataclass(frozen=True)
class Outcome:
    """What must not depend on who led, and when."""

    phase: str
    reason: str
    step: int
    failures: int
    disruptions: int
    restarts: int
    pods: tuple[str, ...]


def play(scenario, *, sabotage=lambda world: None):
    world, script = scenario()
    sabotage(world)
    operators = asyncio.run(run(world, script=script))
    check(world)
    status = world.status
    return (
        world,
        operators,
        Outcome(
            status.phase,
            status.reason,
            status.global_step if status.phase is Phase.SUCCEEDED else 0,
            status.failures,
            status.disruptions,
            status.restarts,
            tuple(sorted(set(world.pod_names))),
        ),
    )


def check(world):
    """What holds in every run: IV1, IV2, IV5, ME7 and R1, seen from outside."""
    names = [name for name in world.pod_names if world.status.membership.reason != "Resumed"]
    assert len(names) == len(set(names)), "a pod was made twice"
    assert all(len(outcomes) == 1 for outcomes in world.told.values()), "somebody was told both"
    steps = []
    for checkpoint in world.checkpoints():
        status = checkpoint["status"]
        assert status["state"] in {"Committed", "GarbageCollected"}, "nothing stays undecided"
        if status["state"] == "Committed":
            assert world.store[status["id"]] == "commit"
            steps.append(status["step"])
        else:
            assert world.store.get(status.get("id"), "abort") == "abort" or status["id"] in world.collected
    assert len(steps) == len(set(steps))
    seen = set()
    for epoch, step in world.trained:
        assert (epoch, step) not in seen
        seen.add((epoch, step))
    repeated = len(world.trained) > len({step for _, step in world.trained})
    assert not repeated or world.status.rollbacks
    check_audit_trail(world)
    if world.status.phase is Phase.SUCCEEDED:
        assert {step for _, step in world.trained} == set(range(1, world.total + 1))


def check_audit_trail(world):
    """AU4, AU5: whole chains, and each restart and the failure once, whoever died when; without them no record."""
    records, anchors = audit_trail(world.api)
    assert [each.fault for each in verify(records, anchors) if each.fault] == []
    expected = [f"{world.uid}/restart/{number}" for number in range(1, world.status.restarts + 1)]
    if world.status.phase is Phase.FAILED:
        expected.append(f"{world.uid}/fail")
    assert [each["spec"]["auditID"] for each in records] == expected


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_a_leader_that_dies_at_any_write_is_followed_by_one_that_goes_on(scenario, after_effect):
    """RC8, RC4, LT8, IV7, TR01, TR13: the same end, the same counts, the same pods.

    CP2, CP3, CP4, CP5: among the writes are those of a checkpoint and of its base's pin; see the next test.
    """
    reference, _, expected = play(scenario)
    assert len(reference.api.writes) > 10
    for number in range(1, len(reference.api.writes) + 1):

        def sabotage(world, number=number):
            world.api.kill_at, world.api.kill_after_effect = number, after_effect

        world, operators, outcome = play(scenario, sabotage=sabotage)
        assert len(operators) == 2, f"nobody died at write {number}"
        assert outcome == expected, f"killed at write {number}: {reference.api.writes[number - 1]}"
        assert world.status.phase == reference.status.phase


def test_the_writes_of_a_checkpoint_that_a_leader_may_die_at_are_all_there():
    """CP2, CP3, CP4, CP5, IV8: object, pin, Staging, Committed, end of the pin; in the end nothing is pinned."""
    world, _, _ = play(process_crashes)
    first, second = "t-c00001", "t-c00002"
    writes = [(verb, name) for verb, kind, name in world.api.writes if kind == "Checkpoint"]
    begun = writes.index(("create", second))
    assert [name for _, name in writes[begun:]] == [second, first, second, second, first]
    found = {each["metadata"]["name"]: each["status"] for each in world.checkpoints()}
    assert found[second]["base"] == found[first]["id"]
    assert not any(status.get("pins") for status in found.values())


ERRORS = {
    "server": lambda: InternalError("try again", status=500, reason="InternalError"),
    "conflict": lambda: Conflict("the object has been modified", status=409, reason="Conflict"),
    "cut off": lambda: TransportError("connection reset", fault=TransportFault.RESET),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "error"),
    [
        (process_crashes, "server"),
        (pod_is_deleted, "conflict"),
        (scaled_up_and_down, "cut off"),
        (suspended_and_resumed, "conflict"),
    ],
)
def test_a_write_that_fails_is_made_again_and_changes_no_count(scenario, error):
    """RC8, TR17, TR19: each write, once."""
    reference, _, expected = play(scenario)
    for number in range(len(reference.api.writes)):

        def sabotage(world, number=number):
            world.api.planned.extend([None] * number + [ERRORS[error]()])

        _, operators, outcome = play(scenario, sabotage=sabotage)
        assert len(operators) == 1
        assert outcome == expected, f"write {number + 1} failed: {reference.api.writes[number]}"


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_many_leaders_one_after_the_other_make_no_difference(writes):
    """RC8: each dies at its first, second or third write, until one may live."""
    reference, _, expected = play(pod_is_deleted)
    world, script = pod_is_deleted()
    operators = [Operator(world)]
    live_tick = world.tick

    def tick(operator):
        if world.api.kill_at is None and len(operators) < 8:
            world.api.kill_at = len(world.api.writes) + writes
            world.api.kill_after_effect = len(operators) % 2 == 0
        live_tick(operator)

    world.tick = tick
    asyncio.run(run(world, script=script, operators=operators))
    check(world)
    assert len(operators) == 8
    assert world.status.phase == reference.status.phase
    assert (world.status.disruptions, world.status.failures) == (expected.disruptions, expected.failures)
