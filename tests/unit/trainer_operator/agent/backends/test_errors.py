"""The names of errors are an interface: the operator's conditions have them as reasons."""

import pytest

from trainer_operator.agent import backends
from trainer_operator.agent.backends import StoreError
from trainer_operator.api.checkpoint import STORE_PROBLEMS
from trainer_operator.checkpoint.quorum import save_problem
from trainer_operator.topology.beat import Ack


@pytest.mark.parametrize("name", sorted(STORE_PROBLEMS))
def test_a_problem_that_an_agent_tells_becomes_the_reason_of_a_condition(name):
    """PB4."""
    error = getattr(backends, name)("one sentence: it helps")
    assert isinstance(error, StoreError)
    ack = Ack("c", 0, 0, ok=False, error=error.told)
    assert save_problem([Ack("c", 0, 1), ack]) == (name, "one sentence: it helps")


def test_every_exported_name_is_there():
    """The package's face."""
    assert all(hasattr(backends, name) for name in backends.__all__)
