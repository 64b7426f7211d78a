"""What is done next for a pod: the table of its module."""

from datetime import UTC, datetime

import pytest

from trainer_operator.devcluster.node.containerstate import ContainerRecord, Running, Terminated, Waiting
from trainer_operator.devcluster.node.podplan import Hold, Plan, plan

RUNNING = Running(datetime(2026, 1, 1, tzinfo=UTC), "id")
WAITING = Waiting("ContainerCreating")


def end(code):
    return Terminated(code, "Error" if code else "Completed")


def spec(policy="Never", inits=(), mains=("m",)):
    return {
        "restartPolicy": policy,
        "initContainers": [{"name": name} for name in inits],
        "containers": [{"name": name} for name in mains],
    }


def planned(a_spec, *, stopping=False, holds=None, now=0.0, **states):
    records = {name: ContainerRecord(name, state) for name, state in states.items()}
    return plan(a_spec, records, holds or {}, stopping=stopping, now=now)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, Plan(start=("i1",))),
        ({"i1": RUNNING}, Plan()),
        ({"i1": end(0)}, Plan(start=("i2",))),
        ({"i1": end(0), "i2": end(0)}, Plan(start=("m",))),
        ({"i1": end(1)}, Plan(ended=True)),
        ({"i1": end(0), "i2": end(0), "m": RUNNING}, Plan()),
        ({"m": RUNNING}, Plan()),
        ({"i1": end(0), "i2": end(0), "m": end(0)}, Plan(ended=True)),
        ({"i1": end(0), "i2": end(0), "m": end(1)}, Plan(ended=True)),
    ],
)
def test_init_containers_come_one_after_the_other_and_before_the_main_one(states, expected):
    assert planned(spec(inits=("i1", "i2")), **states) == expected


@pytest.mark.parametrize(
    ("policy", "code", "starts"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 1, False),
    ],
)
def test_ended_container_is_started_again_as_the_policy_says(policy, code, starts):
    expected = Plan(start=("m",)) if starts else Plan(ended=True)
    assert planned(spec(policy), m=end(code)) == expected


def test_init_container_that_failed_is_started_again_unless_never():
    assert planned(spec("OnFailure", inits=("i",)), i=end(1)) == Plan(start=("i",))


def test_main_containers_start_together_and_one_end_does_not_end_the_pod():
    assert planned(spec(mains=("a", "b"))) == Plan(start=("a", "b"))
    assert planned(spec(mains=("a", "b")), a=end(1), b=RUNNING) == Plan()
    assert planned(spec(mains=("a", "b")), a=end(1), b=end(0)) == Plan(ended=True)


def test_held_container_waits_and_the_others_do_not():
    hold = Hold(10.0, Waiting("CrashLoopBackOff"))
    result = planned(spec("Always", mains=("a", "b")), holds={"a": hold}, now=4.0, a=end(1), b=end(1))
    assert result == Plan(start=("b",), held=(("a", hold.waiting),), wake=6.0)
    assert planned(spec("Always"), holds={"m": hold}, now=10.0, m=WAITING) == Plan(start=("m",))


def test_pod_that_stops_starts_nothing_and_has_ended_when_nothing_runs():
    assert planned(spec("Always", mains=("a", "b")), stopping=True, a=RUNNING, b=end(1)) == Plan(stop=("a",))
    assert planned(spec("Always"), stopping=True, m=end(0)) == Plan(ended=True)
    assert planned(spec("Always"), stopping=True) == Plan(ended=True)
