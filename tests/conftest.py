"""Settings of all tests: how long hypothesis searches, and that nothing of this machine's user leaks in."""

import os
import signal

import hypothesis
import pytest

from trainer_operator.agent.chunkcache import ChunkCache

pytest_plugins = ["realcontrolplane", "distribution"]

# The soak test runs for minutes and only when it is asked for: `make soak`.
collect_ignore = [] if "SOAK_SECONDS" in os.environ else ["soak"]
# Real containers need root and a room: `make e2e`.
collect_ignore += [] if "TRAINER_OPERATOR_REAL_NODE" in os.environ else ["e2e"]
# It waits for minutes that Kubernetes takes, and its times mean something only on a quiet machine: `make node-loss`.
collect_ignore += [] if "NODE_LOSS" in os.environ else ["integration/trainer/test_lost_volumes.py"]
# PyTorch and JAX are installed only when they are asked for: `make frameworks`.
collect_ignore += [] if "FRAMEWORKS" in os.environ else ["frameworks"]

# A merge gets the same answer each time for the same tree; people search at random, `make explore` for long.
hypothesis.settings.register_profile("dev", max_examples=50, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("SEARCH") or ("ci" if os.environ.get("CI") else "dev"))

# A shell that starts a run in the background has it ignore Ctrl-C, and so would every process that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_foreign_settings(monkeypatch):
    """A developer's own cluster and kubeconfig are never touched by a test."""
    for variable in (
        "KUBECONFIG",
        "TRAINER_OPERATOR_CLUSTER",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
    ):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def roomy(monkeypatch):
    """Chunks are kept however full the disk of this machine is."""
    monkeypatch.setitem(ChunkCache.__init__.__kwdefaults__, "free_share", 0.0)
