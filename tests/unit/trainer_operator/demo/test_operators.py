"""The operator processes: what they are started with, and who of them leads."""

import asyncio
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from trainer_operator.demo.operators import NAMES, Operators, OperatorSettings, claims_to_lead

PAGE = (
    '# TYPE leader_election_master_status gauge\nleader_election_master_status{name="trainer-operator"} %s\n'
)


class Metrics:
    """Serves answers that a test sets, one after the other; the last one stays."""

    def __init__(self, *answers):
        self.answers = list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(200 if answer is not None else 503)
                self.end_headers()
                self.wfile.write((answer or "").encode())

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def make(tmp_path):
    def build(*health_ports, command=("-c", "import time; time.sleep(60)")):
        settings = OperatorSettings(tmp_path / "kubeconfig", tmp_path, "operators", tmp_path / "logs")
        ports = [port for number, health in enumerate(health_ports) for port in (9000 + number, health)]
        operators = Operators(settings, ports)
        operators.command = lambda name: [sys.executable, *command]  # type: ignore[method-assign]
        return operators

    return build


async def with_running(operators, use):
    for name in NAMES:
        operators.start(name)
    try:
        return await use()
    finally:
        await operators.stop()
        assert not any(operators[name].is_running for name in NAMES)


def test_both_operators_are_known_to_agents_and_stand_for_election(tmp_path):
    """RB5: with the kubeconfig that they are given."""
    settings = OperatorSettings(tmp_path / "kubeconfig", tmp_path / "tls", "operators", tmp_path / "logs")
    operators = Operators(settings, (1, 2, 3, 4))
    command = operators.command("operator-b")
    for option in (
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        "--agent-bind-address=127.0.0.1:3",
        "--health-probe-bind-address=127.0.0.1:4",
        "--agent-url=https://127.0.0.1:1",
        "--agent-url=https://127.0.0.1:3",
        "--leader-elect",
        "--leader-election-namespace=operators",
        "--voluntary-interval=5",
    ):
        assert option in command


@pytest.mark.parametrize(("value", "leads"), [("1.0", True), ("0.0", False)])
def test_the_metrics_page_says_who_leads(value, leads):
    assert claims_to_lead(PAGE % value) is leads
    assert not claims_to_lead("")


@pytest.mark.parametrize(
    ("a", "b", "leaders"),
    [
        ([PAGE % 1], [PAGE % 0], ("operator-a",)),
        ([PAGE % 1], [PAGE % 1], NAMES),
        ([PAGE % 1, PAGE % 0], [PAGE % 0, PAGE % 1], ()),  # it passed from one to the other in between
        ([None], [PAGE % 1], ("operator-b",)),
    ],
    ids=["one", "two at once", "handed over", "one does not answer"],
)
async def test_only_who_says_so_before_and_after_leads(make, a, b, leaders):
    """L2."""
    with Metrics(*a) as first, Metrics(*b) as second:
        operators = make(first.port, second.port)
        assert await with_running(operators, operators.leaders) == leaders


async def test_a_killed_operator_does_not_lead_and_did_not_end_by_itself(make):
    with Metrics(PAGE % 1) as page:
        operators = make(page.port, page.port)

        async def use():
            operators.kill("operator-a")
            while operators["operator-a"].is_running:
                await asyncio.sleep(0)
            return await operators.leaders()

        assert await with_running(operators, use) == ("operator-b",)
        assert not operators.ended_by_itself("operator-a")
        assert operators["operator-a"].process.exit_code() == -signal.SIGKILL


async def test_an_operator_that_ends_by_itself_is_told_with_its_last_words(make):
    operators = make(1, 2, command=("-c", "raise SystemExit('no certificate')"))

    async def use():
        while operators["operator-a"].is_running:
            await asyncio.sleep(0)
        return operators.ended()

    found = await with_running(operators, use)
    assert "operator-a ended with code 1: no certificate" in found


async def test_nobody_is_ready_where_nobody_answers(make):
    operators = make(1, 2)
    assert not await operators.is_ready("operator-a")
