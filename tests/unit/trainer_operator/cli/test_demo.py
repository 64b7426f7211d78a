"""`trainer-operator demo`: help, refusals in a sentence, exit codes."""

import pytest
from typer.testing import CliRunner

from trainer_operator.cli import demo
from trainer_operator.cli.main import app
from trainer_operator.demo.frame import Frame
from trainer_operator.demo.verify import Check
from trainer_operator.devcluster.errors import ClusterFault

HOLDS, FAILS = Check("it trains", True, "it did"), Check("it is quick", False, "it was not")


class StandIn:
    """A performance that ends as it is told to."""

    ending: Frame | BaseException = Frame()
    log: list[str]

    def __init__(self, options):
        StandIn.log = [f"pace {options.pace:g}, epochs {options.epochs}"]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.log.append("down")

    async def run(self, view):
        if isinstance(self.ending, BaseException):
            raise self.ending
        view.show(self.ending)
        return self.ending

    def places(self):
        return ()


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(demo, "ensure", lambda: None)
    monkeypatch.setattr(demo, "Performance", StandIn)
    monkeypatch.setenv("COLUMNS", "100")

    def invoke(*arguments, ending=None):
        StandIn.ending = ending or Frame(checks=(HOLDS,))
        return CliRunner().invoke(app, ["demo", *arguments])

    return invoke


def test_the_demo_explains_itself(run):
    result = run("--help")
    assert result.exit_code == 0
    for option in ("--keep", "--plain", "--svg", "--epochs"):
        assert option in result.output


@pytest.mark.parametrize(("checks", "code"), [((HOLDS,), 0), ((HOLDS, FAILS), 1), ((), 1)])
def test_the_exit_code_is_0_only_when_every_expectation_held(run, checks, code):
    result = run(ending=Frame(checks=checks))
    assert result.exit_code == code
    assert StandIn.log[-1] == "down"


def test_options_reach_the_performance(run, tmp_path):
    result = run("--pace", "0.5", "--epochs", "3", "--svg", str(tmp_path / "demo.svg"))
    assert result.exit_code == 0
    assert StandIn.log[0] == "pace 0.5, epochs 3"
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


def test_what_cannot_be_performed_is_told_in_a_sentence(run):
    result = run(ending=ClusterFault("the cluster demo is up already"))
    assert result.exit_code == 1
    assert "error: the cluster demo is up already" in result.output
    assert "Traceback" not in result.output
    assert StandIn.log[-1] == "down"


def test_ctrl_c_ends_in_order(run):
    result = run(ending=KeyboardInterrupt())
    assert result.exit_code == 130
    assert StandIn.log[-1] == "down"


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--pace", "-1"], ["--no-such"]])
def test_wrong_usage_is_refused(run, arguments):
    assert run(*arguments).exit_code == 2
