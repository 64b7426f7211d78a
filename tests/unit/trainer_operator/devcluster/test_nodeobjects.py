"""Node objects as the supervisor reads them."""

import datetime as dt

import pytest

from trainer_operator.devcluster.nodeobjects import not_yet_back, ready_names, surplus_names


def node(name, ready=None):
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Other", "status": "True"}, *conditions]},
    }


def test_only_nodes_that_say_so_are_ready():
    nodes = [
        node("a", "True"),
        node("b", "False"),
        node("c", "Unknown"),
        node("d"),
        {"metadata": {"name": "e"}},
    ]
    assert ready_names(nodes) == {"a"}


@pytest.mark.parametrize("name", ["kwok-0", "node-1x", "my-node-1", "node-"])
def test_node_of_somebody_else_is_never_surplus(name):
    assert surplus_names([node(name), node("node-7"), node("node-0")], wanted=["node-0"]) == {"node-7"}


def test_node_that_has_not_reported_is_unknown_since_the_start():
    condition = not_yet_back(dt.datetime(2026, 12, 2, 8, tzinfo=dt.UTC))["status"]["conditions"][0]
    assert (condition["status"], condition["lastTransitionTime"]) == ("Unknown", "2026-12-02T08:00:00Z")
