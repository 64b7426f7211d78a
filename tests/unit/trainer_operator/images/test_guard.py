"""Addresses that the operator connects to, and those that it does not."""

import socket

import pytest

from trainer_operator.images.guard import AddressRefused, guarded_socket, refusal

LOCAL = [
    "127.0.0.1",
    "127.1.2.3",
    "::1",
    "169.254.169.254",
    "fe80::1",
    "fe80::1%eth0",
    "0.0.0.0",
    "::",
    "224.0.0.1",
]
MAPPED = ["::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::"]
PRIVATE = ["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "64:ff9b::a00:1"]
PUBLIC = ["140.82.112.33", "2606:50c0:8000::154", "::ffff:140.82.112.33"]


@pytest.mark.parametrize("address", LOCAL + MAPPED)
def test_local_addresses_are_refused_in_every_spelling(address):
    """NE2, ATK16."""
    assert "is a local address" in refusal(address, private=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_for_registries_that_the_administrator_named(address):
    """NE2."""
    assert "is a private address" in refusal(address, private=False)
    assert refusal(address, private=True) == ""


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address):
    """NE2."""
    assert refusal(address, private=False) == ""


def test_what_is_no_address_is_refused():
    """NE1."""
    assert refusal("kubernetes.default.svc", private=True) == "kubernetes.default.svc is no IP address"


def test_no_socket_is_made_for_a_refused_address():
    """NE1, ATK16."""
    info = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))
    with pytest.raises(AddressRefused):
        guarded_socket(info, private=False)
    guarded_socket(info, private=True).close()
