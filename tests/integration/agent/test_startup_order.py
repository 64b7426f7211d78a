"""What the real agent says of the port of its process, so that others start after it (TR47)."""

import sys

import pytest

LISTENS = (
    "import os, socket, time\n"
    "go = os.path.join(os.environ['HOME'], 'go')\n"
    "while not os.path.exists(go): time.sleep(0.02)\n"
    "server = socket.create_server((os.environ['TRAINER_ADDRESS'], int(os.environ['TRAINER_PORT'])))\n"
    "time.sleep(600)"
)


def begin(operator, member):
    operator.want(member, "prepare:1", "Prepare", epoch=1, psEpoch=0)
    assert operator.result("prepare:1")["ok"]
    args = {"epoch": 1, "psEpoch": 0, "rank": 0, "world": 1, "env": {}, "members": [], "restoreStep": 0}
    assert operator.result(operator.want(member, "go:1", "Go", **args))["ok"]
    operator.wait(lambda: operator.beat(member).get("proc") == "running", 60, "a process")


@pytest.mark.parametrize("role", ["ps", "master"])
def test_a_server_or_master_tells_when_its_process_listens(operator, start_agent, role):
    """TR47: false while it starts, and the change is told at once."""
    member = f"{role}-0"
    agent = start_agent(role, 0, [sys.executable, "-c", LISTENS])
    begin(operator, member)
    assert operator.beat(member)["listening"] is False
    (agent.folder / "go").touch()
    operator.wait(lambda: operator.beat(member)["listening"] is True, 60, "that it listens")


def test_a_worker_tells_nothing_of_its_port(operator, start_agent):
    """TR47: nobody waits for it, so nobody looks."""
    start_agent("worker", 0, [sys.executable, "-c", LISTENS])
    begin(operator, "worker-0")
    assert operator.beat("worker-0")["listening"] is None
