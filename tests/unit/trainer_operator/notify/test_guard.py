"""Which addresses messages go to."""

import socket
import threading

import pytest

from trainer_operator.images.guard import AddressRefused, guarded_socket
from trainer_operator.notify.guard import guarded, refusal

LOCAL = [
    "127.0.0.1",
    "127.8.8.8",
    "::1",
    "::ffff:127.0.0.1",
    "169.254.169.254",
    "fe80::1",
    "64:ff9b::169.254.169.254",
    "2002:a9fe:a9fe::1",
    "0.0.0.0",
    "::",
    "224.0.0.1",
]


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("address", LOCAL)
def test_local_addresses_are_refused_always(address, private):
    """NE2, ATK16: also where the administrator lists the host."""
    assert "local address" in refusal(address, private=private)


@pytest.mark.parametrize("address", ["10.1.2.3", "192.168.1.1", "172.20.0.1", "fd00::1", "100.64.0.1"])
def test_private_addresses_need_the_host_to_be_listed(address):
    """NE2."""
    assert "privateHosts" in refusal(address, private=False)
    assert refusal(address, private=True) == ""


def test_public_addresses_are_allowed():
    assert refusal("8.8.8.8", private=False) == ""


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f000001", "localhost"])
def test_what_is_no_final_address_is_refused(host):
    """ATK16."""
    assert "is no IP address" in refusal(host, private=True)


def test_no_socket_is_made_for_a_refused_address():
    """NE1."""
    metadata = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))
    with pytest.raises(AddressRefused):
        guarded_socket(metadata, private=True, judge=refusal)


def test_a_thread_in_the_block_cannot_connect_and_others_can():
    """NE5: whoever makes the socket; nothing arrives at the server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        where = server.getsockname()
        with guarded(private=True) as refused:
            with pytest.raises(AddressRefused):
                socket.create_connection(where)
            other = threading.Thread(target=lambda: socket.create_connection(where).close())
            other.start()
            other.join()
        assert len(refused) == 1
        server.accept()[0].close()
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
        with socket.create_connection(where):
            pass  # the block is over
