"""Sentences and exit codes."""

import pytest
import typer

from runtime.client.errors import Forbidden, Invalid, TransportError, TransportFault, Unauthorized
from runtime.errors import ConfigurationInvalid
from trainer_operator.cli.plugin.access import unknown_trainer
from trainer_operator.cli.plugin.failure import EXIT_CODES, Complaint, ExitCode, complaint_of, explained

DENIED = (
    'trainers.trainer.operator.kubeflow.org is forbidden: User "ann" cannot list resource "trainers" '
    'in API group "trainer.operator.kubeflow.org" in the namespace "team-a"'
)


@pytest.mark.parametrize(
    ("error", "sentence", "code"),
    [
        (
            Forbidden(DENIED, status=403),
            (
                "user ann may not list trainers.trainer.operator.kubeflow.org in namespace team-a: ask for a role with "
                "the verb list on trainers.trainer.operator.kubeflow.org"
            ),
            ExitCode.FORBIDDEN,
        ),
        (Forbidden("no\nway", status=403), "this is forbidden: no way", ExitCode.FORBIDDEN),
        (
            Unauthorized("Unauthorized", status=401),
            "https://api does not accept these credentials: check the user of the kubeconfig's context",
            ExitCode.FORBIDDEN,
        ),
        (
            TransportError("GET /x: connect", fault=TransportFault.CONNECT),
            "the API server at https://api cannot be reached: GET /x: connect",
            ExitCode.UNREACHABLE,
        ),
        (ConfigurationInvalid("no kubeconfig found"), "no kubeconfig found", ExitCode.UNREACHABLE),
        (
            Invalid(
                'Trainer "d" is invalid: long',
                status=422,
                status_object={
                    "details": {"causes": [{"field": "spec.topology.workers", "message": "at most 10"}]}
                },
            ),
            "the API server refused: spec.topology.workers: at most 10",
            ExitCode.FAILED,
        ),
    ],
)
def test_each_failure_has_a_sentence_and_a_code_of_its_own(error, sentence, code):
    """CL1."""
    complaint = complaint_of(error, "https://api")
    assert (str(complaint), complaint.code) == (sentence, code)


def test_expected_failures_end_in_one_line_and_defects_pass(capsys):
    """CL1: a group of failures too; a group with a defect is a defect."""
    with pytest.raises(typer.Exit) as ended, explained():
        raise ExceptionGroup("tasks", [Complaint("nothing was deleted", ExitCode.NOT_NOW)])
    assert ended.value.exit_code == ExitCode.NOT_NOW
    assert capsys.readouterr().err == "error: nothing was deleted\n"
    with pytest.raises(ExceptionGroup), explained():
        raise ExceptionGroup("tasks", [KeyError("defect")])
    with pytest.raises(typer.Exit) as ended, explained():
        raise KeyboardInterrupt
    assert ended.value.exit_code == ExitCode.INTERRUPTED


def test_every_exit_code_is_documented():
    """CL1."""
    lines = EXIT_CODES.splitlines()
    for code in ExitCode:
        assert any(line.split()[:1] == [str(int(code))] for line in lines), code


@pytest.mark.parametrize(
    ("names", "elsewhere", "sentence"),
    [
        ([], [], "no Trainer digit in namespace a, which has none: use -n for another one"),
        (["digits", "mnist"], [], "no Trainer digit in namespace a: there are digits, mnist"),
        (
            [f"t{n}" for n in range(11)],
            [],
            "no Trainer digit in namespace a: there are t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 1 more",
        ),
        (["mnist"], ["b"], "no Trainer digit in namespace a, but in b: use -n"),
    ],
)
def test_an_unknown_trainer_is_told_with_what_there_is(names, elsewhere, sentence):
    """CL1."""
    assert unknown_trainer("digit", "a", names, elsewhere) == sentence
