"""Fixtures for tests of real agent processes."""

import pytest

from integration.agent.scripted import AgentProcess, ScriptedOperator
from trainer_operator.agent.install import install


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Folder with agent.pyz and trainer_sdk.py, as the init container leaves it."""
    folder = tmp_path_factory.mktemp("agent")
    install(str(folder))
    return folder


@pytest.fixture
def operator(tmp_path):
    operator = ScriptedOperator(tmp_path).start()
    yield operator
    operator.stop()


@pytest.fixture
def start_agent(installed, operator, tmp_path):
    """Start agents; all end with the test."""
    started = []

    def start(role, index, command, **more):
        agent = AgentProcess(
            installed,
            tmp_path,
            operator,
            role=role,
            index=index,
            command=command,
            store=tmp_path / "store",
            **more,
        )
        started.append(agent)
        return agent

    yield start
    for agent in started:
        agent.end()
