"""Where a redirect may lead: never further inside than the hub itself is."""

import socket

import pytest

from trainer_operator.agent.hub.reach import Inwardness, Refused, connect, inwardness


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("8.8.8.8", Inwardness.OUTSIDE),
        ("2606:4700::1", Inwardness.OUTSIDE),
        ("10.1.2.3", Inwardness.PRIVATE),
        ("fd00::1", Inwardness.PRIVATE),
        ("100.64.0.1", Inwardness.PRIVATE),
        ("::ffff:10.1.2.3", Inwardness.PRIVATE),
        ("127.0.0.1", Inwardness.LOCAL),
        ("::1", Inwardness.LOCAL),
        ("0.0.0.0", Inwardness.LOCAL),
        ("169.254.169.254", Inwardness.LOCAL),
        ("::ffff:169.254.169.254", Inwardness.LOCAL),
        ("64:ff9b::a9fe:a9fe", Inwardness.LOCAL),
        ("2002:7f00:1::", Inwardness.LOCAL),
        ("fe80::1%eth0", Inwardness.LOCAL),
        ("localhost", Inwardness.LOCAL),
    ],
)
def test_addresses_are_judged_by_what_they_stand_for(address, place):
    """NE2, ATK16: mapped, NAT64 and 6to4 included."""
    assert inwardness(address) is place


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "127.1", "::ffff:127.0.0.1"]
)
@pytest.mark.parametrize("most", [Inwardness.OUTSIDE, Inwardness.PRIVATE])
def test_nothing_is_sent_to_an_address_that_is_further_inside(host, most):
    """ATK16: in any spelling; nobody listens, so a connection would fail with another error."""
    with pytest.raises(Refused):
        connect(host, 1, timeout=5.0, most=most)


def test_the_hub_itself_may_be_anywhere():
    """NE2: the administrator chose it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found, place = connect("127.0.0.1", server.getsockname()[1], timeout=30.0, most=None)
        found.close()
    assert place is Inwardness.LOCAL
