"""Times, durations and foreign text."""

from datetime import UTC, datetime

import pytest

from trainer_operator.cli.plugin.words import plain, presentable, seconds_of, since, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (130, "2m10s"),
        (1500, "25m"),
        (3 * 3600 + 240, "3h4m"),
        (12 * 3600, "12h"),
        (2 * 86400 + 3600, "2d1h"),
        (30 * 86400, "30d"),
    ],
)
def test_durations_read_as_kubectl_writes_them(seconds, text):
    """CL1."""
    assert span(seconds) == text


def test_times_that_are_none_are_left_empty():
    """CL1."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert [since(text, now) for text in (None, "", "yesterday", 7)] == ["", "", "", ""]
    assert since("2025-12-31T23:59:00Z", now) == "60s"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800)])
def test_durations_are_read(text, seconds):
    """CL1."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m5", "5 minutes", "-5m"])
def test_what_is_no_duration_is_told_with_an_example(text):
    """CL1."""
    with pytest.raises(ValueError, match="no duration, write for example 90s"):
        seconds_of(text)


def test_foreign_text_cannot_steer_the_terminal():
    """ATK13."""
    assert plain("red \x1b[31malert\r\nnext\x9b2J ") == "red  [31malert next 2J"


def test_presentable_objects_hold_no_secret_values_and_no_bookkeeping():
    """RD2, CL1: neither in the variable nor in the annotation that kubectl apply leaves."""
    obj = {
        "metadata": {
            "name": "digits",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": '{"value":"hunter2"}',
                "team": "vision",
            },
        },
        "spec": {"env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "LEVEL", "value": "info"}]},
    }
    shown = presentable(obj)
    assert "hunter2" not in repr(shown)
    assert shown["metadata"] == {"name": "digits", "annotations": {"team": "vision"}}
    assert shown["spec"]["env"][1] == {"name": "LEVEL", "value": "info"}
    assert obj["spec"]["env"][0]["value"] == "hunter2"
