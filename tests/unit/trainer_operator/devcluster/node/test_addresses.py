"""Loopback addresses of nodes and pods."""

import pytest

from trainer_operator.devcluster.node.addresses import NODE_ADDRESSES, claim_network


@pytest.fixture
def network():
    claimed = claim_network(200)
    yield claimed
    claimed.close()


def test_two_nodes_never_share_a_network(network):
    other = claim_network(network.number)
    try:
        assert other.number != network.number
        assert {network.address, other.address} <= set(NODE_ADDRESSES)
    finally:
        other.close()


def test_network_is_free_again_when_its_node_is_gone():
    first = claim_network(201)
    first.close()
    second = claim_network(first.number)
    second.close()
    assert second.number == first.number


def test_addresses_are_unique_and_a_freed_one_is_not_used_at_once(network):
    first, second = network.allocate(), network.allocate()
    assert first != second
    assert first != network.address
    network.release(first)
    assert network.allocate() not in {first, second}


def test_address_from_before_a_restart_is_not_given_again(network):
    kept = f"127.{network.number}.1.7"
    network.keep(kept)
    network.keep("127.999.0.1")
    network.keep("")
    assert network.allocate() == f"127.{network.number}.1.8"
