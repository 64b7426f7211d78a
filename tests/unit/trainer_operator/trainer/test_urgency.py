"""What is looked at at once, and what waits for more of its kind."""

import msgspec
import pytest

from runtime.cache.projection import Pod
from trainer_operator.trainer.urgency import PATIENCE, is_new, pod_patience, trainer_patience


def pod(phase="Running", *, deleting=False, conditions=(), states=()):
    return msgspec.convert(
        {
            "metadata": {"name": "p", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})},
            "status": {
                "phase": phase,
                "conditions": list(conditions),
                "containerStatuses": [{"name": "trainer", "state": state} for state in states],
            },
        },
        Pod,
    )


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_that_comes_up_waits_for_the_others(phase):
    """RC2: it says so four times, and nothing follows from each."""
    running = [{"running": {}}, {"waiting": {"reason": "ContainerCreating"}}]
    assert pod_patience(None, pod(phase, states=running)) == PATIENCE
    assert pod_patience(pod("Pending"), pod(phase)) == PATIENCE


@pytest.mark.parametrize(
    "ended",
    [
        pod("Failed"),
        pod("Succeeded"),
        pod("Unknown"),
        pod(deleting=True),
        pod(conditions=[{"type": "DisruptionTarget", "status": "True"}]),
        pod(states=[{"running": {}}, {"terminated": {"exitCode": 1}}]),
        None,
    ],
    ids=["failed", "succeeded", "unknown", "deleting", "disrupted", "a container ended", "gone"],
)
def test_what_ends_is_looked_at_before_all_else(ended):
    """LT1: a lost pod is replaced without a wait, also in the midst of a storm of new Trainers."""
    assert pod_patience(pod(), ended) is None


def trainer(*, generation=1, annotations=None, deleting=None):
    return {
        "metadata": {
            "name": "t",
            "generation": generation,
            "annotations": annotations or {},
            **({"deletionTimestamp": deleting} if deleting else {}),
        }
    }


@pytest.mark.parametrize(
    "new",
    [trainer(generation=2), trainer(annotations={"a": "b"}), trainer(deleting="2026-01-01T00:00:00Z"), None],
    ids=["spec", "annotations", "deletion", "gone"],
)
def test_what_a_user_asks_for_is_looked_at_at_once(new):
    """TR20."""
    assert trainer_patience(trainer(), new) == 0
    assert trainer_patience(None, trainer()) == 0


def test_a_status_that_was_written_waits():
    """RC2: it is our own, mostly."""
    assert trainer_patience(trainer(), trainer()) == PATIENCE


def test_a_trainer_is_new_until_an_operator_has_looked_at_it():
    """Q4: after a restart it goes before those that train already."""
    assert is_new(trainer())
    assert is_new({**trainer(), "status": {}})
    assert not is_new({**trainer(), "status": {"phase": "Pending"}})
