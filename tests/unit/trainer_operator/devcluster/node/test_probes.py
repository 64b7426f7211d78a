"""The probe state machine: the table of its module."""

import pytest

from trainer_operator.devcluster.node.probes import ProbeKind, ProbeSettings, ProbeState, step


def verdicts(kind, answers, **settings):
    state, seen = ProbeState.initial(kind), []
    for success in answers:
        state = step(state, ProbeSettings(**settings), success=success)
        seen.append(state.passing)
    return seen, state


@pytest.mark.parametrize(
    ("kind", "answers", "settings", "expected"),
    [
        (ProbeKind.READINESS, [True], {}, [True]),
        (ProbeKind.READINESS, [False, True], {"failure_threshold": 1}, [False, True]),
        (ProbeKind.READINESS, [True, True], {"success_threshold": 2}, [False, True]),
        (ProbeKind.READINESS, [True, False, True], {"success_threshold": 2}, [False, False, False]),
        (ProbeKind.READINESS, [True, False, False, False], {}, [True, True, True, False]),
        (ProbeKind.LIVENESS, [False, False, True, False, False], {}, [True, True, True, True, True]),
        (ProbeKind.LIVENESS, [False, False, False], {}, [True, True, False]),
        (ProbeKind.STARTUP, [False, False, True], {}, [False, False, True]),
    ],
)
def test_verdict_turns_only_at_a_threshold(kind, answers, settings, expected):
    assert verdicts(kind, answers, **settings)[0] == expected


def test_startup_probe_fails_for_good_only_at_its_threshold():
    assert verdicts(ProbeKind.STARTUP, [False, False])[1].failed is False
    assert verdicts(ProbeKind.STARTUP, [False, False, False])[1].failed is True


def test_defaults_are_the_api_s():
    assert ProbeSettings.of({}) == ProbeSettings(0.0, 10.0, 1.0, 1, 3, None)
    assert ProbeSettings.of({"terminationGracePeriodSeconds": 0, "periodSeconds": 2}).grace == 0.0
