"""What is written at once, and what waits for its turn."""

import pytest

from trainer_operator.trainer.news import is_news


def status(**fields):
    return {"phase": "Starting", "failures": 0, "roles": {"worker": {"ready": 1}}, "conditions": [], **fields}


def condition(value, *, kind="Scheduled", reason="R", message=""):
    return {"type": kind, "status": value, "reason": reason, "message": message}


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": "Running"},
        {"failures": 1},
        {"membership": {"epoch": 2}},
        {"conditions": [condition("False")]},
        {"reason": "Done"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_change_of_phase_epoch_attempt_counter_or_verdict_is_news(changed):
    """ST7."""
    assert is_news(status(), status(**changed))
    assert is_news(status(**changed), status()), "so is its end"


@pytest.mark.parametrize(
    "changed",
    [{"globalStep": 7}, {"roles": {"worker": {"ready": 2}}}, {"readyWorkers": "2/4"}, {"workers": 4}],
    ids=lambda changed: next(iter(changed)),
)
def test_counts_and_progress_are_none(changed):
    """ST7: members of a large Trainer come one by one, which would be a write each."""
    assert not is_news(status(), status(**changed))


def test_that_the_first_pod_has_a_node_can_wait_and_any_other_phase_cannot():
    """ST7: the nodes of the others, and the first agents, come within the same seconds."""
    assert not is_news(status(phase="Pending"), status(phase="Starting"))
    assert is_news(status(phase="Starting"), status(phase="Pending"))
    assert is_news(status(phase="Pending"), status(phase="Starting", failures=1))
    assert is_news(status(phase="Pending"), status(phase="Running"))


def test_the_words_of_a_condition_are_none_but_its_verdict_is():
    """ST7."""
    two, one = (
        status(conditions=[condition("True", message=f"{n} of 4 members are not there")]) for n in (2, 1)
    )
    assert not is_news(two, one)
    assert is_news(one, status(conditions=[condition("False")]))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("Unknown", "True", False),
        ("Unknown", "False", True),
        ("False", "True", True),
        ("True", "False", True),
        ("True", "Unknown", True),
    ],
)
def test_that_something_turned_out_well_can_wait(before, after, expected):
    """ST7."""
    assert is_news(status(conditions=[condition(before)]), status(conditions=[condition(after)])) is expected
