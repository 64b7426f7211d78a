"""Nodes: when one is suspicious, when it is down, and how the rest of a Lease is measured."""

import msgspec
import pytest

from runtime.cache.projection import Node
from runtime.testing.clock import SimClock
from trainer_operator.trainer.nodes import (
    OUR_TAINT_VALUE,
    OUT_OF_SERVICE_TAINT,
    SHUTDOWN_TAINT,
    NodeLease,
    NodeLeases,
    NodeView,
    has_our_taint,
    is_back,
    node_views,
)

DOWN = NodeView(ready=False, lease_age=61.0, silence=61.0)


def node(name="a", *, ready="True", taints=()):
    conditions = [{"type": "Ready", "status": ready}]
    body = {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(body, Node)


def lease(renewed, name="a"):
    return msgspec.convert({"metadata": {"name": name}, "spec": {"renewTime": renewed}}, NodeLease)


@pytest.mark.parametrize(
    ("view", "suspicious"),
    [
        (NodeView(ready=True), False),
        (NodeView(ready=True, lease_age=14.9), False),
        (NodeView(ready=True, lease_age=15.0), True),
        (NodeView(ready=False, lease_age=0.0), True),
        (NodeView(ready=True, shut_down=True), True),
    ],
)
def test_a_node_is_suspicious_before_kubernetes_calls_it_not_ready(view, suspicious):
    """DT3."""
    assert view.is_suspicious is suspicious


@pytest.mark.parametrize(
    ("view", "down"),
    [
        (DOWN, True),
        (NodeView(ready=True, lease_age=1e6, silence=1e6), False),
        (NodeView(ready=False, lease_age=60.0, silence=1e6), False),
        (NodeView(ready=False, lease_age=None, silence=1e6), False),
        (NodeView(ready=False, lease_age=1e6, silence=60.0), False),
        (NodeView(ready=True, lease_age=0.0, silence=0.0, shut_down=True), True),
    ],
)
def test_a_node_is_down_only_when_everything_agrees_or_its_cloud_says_so(view, down):
    """ND4, FT16."""
    assert view.is_down is down
    assert bool(view.doubts) is not down


def test_a_lease_rests_from_when_its_renewal_was_seen_whatever_its_clock_says():
    """DT3: clocks of nodes are not believed, and a cache that was just filled calls nobody lost."""
    clock = SimClock()
    leases = NodeLeases(clock)
    assert leases.age("a") is None
    leases.on_add(lease("1970-01-01T00:00:00Z"), initial=True)
    assert leases.age("a") == 0.0
    clock.advance(20.0)
    leases.on_update(lease("1970-01-01T00:00:00Z"), lease("1970-01-01T00:00:00Z"))
    assert leases.age("a") == 20.0  # another field of it changed, or the cache was filled again
    leases.on_update(lease("1970-01-01T00:00:00Z"), lease("1970-01-01T00:00:10Z"))
    assert (leases.age("a"), leases.renewed("a")) == (0.0, "1970-01-01T00:00:10Z")
    leases.on_delete(lease("1970-01-01T00:00:10Z"), final_state_unknown=False)
    assert leases.age("a") is None


def test_agents_are_asked_for_only_on_nodes_that_are_lost():
    asked = []

    def silence(name):
        asked.append(name)
        return 7.0

    nodes = [node("a"), node("b", ready="Unknown", taints=[{"key": SHUTDOWN_TAINT}])]
    views = node_views(nodes, NodeLeases(SimClock()), silence=silence)
    assert views == {"a": NodeView(ready=True), "b": NodeView(ready=False, silence=7.0, shut_down=True)}
    assert asked == ["b"]


@pytest.mark.parametrize(("value", "ours"), [(OUR_TAINT_VALUE, True), ("nodeshutdown", False)])
def test_a_taint_of_an_administrator_is_told_from_ours(value, ours):
    """ND3."""
    assert has_our_taint(node(taints=[{"key": OUT_OF_SERVICE_TAINT, "value": value}])) is ours


@pytest.mark.parametrize(
    ("ready", "rested", "back"), [("True", 14, True), ("True", 15, False), ("Unknown", 0, False)]
)
def test_a_node_is_back_when_it_is_ready_and_renews_its_lease(ready, rested, back):
    """ND3."""
    clock = SimClock()
    leases = NodeLeases(clock)
    leases.on_add(lease("now"), initial=True)
    clock.advance(rested)
    assert is_back(node(ready=ready), leases) is back
