"""Free ports."""

import random
import socket

import pytest

from trainer_operator.devcluster import ports
from trainer_operator.devcluster.errors import ClusterFault


class StuckRandom(random.Random):
    """Always proposes the same port."""

    def __init__(self, port):
        super().__init__(0)
        self.port = port

    def randint(self, a, b):
        return self.port


def test_ports_are_distinct_and_below_the_ephemeral_range():
    found = ports.free_ports(20, rng=random.Random(7))
    assert len(set(found)) == 20
    assert all(20_000 <= port < 32_768 for port in found)


def test_port_in_use_is_never_given():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not ports.is_free(port)
        with pytest.raises(ClusterFault, match="fewer than 1 free ports"):
            ports.free_ports(1, rng=StuckRandom(port))


def test_conflict_is_read_from_the_output_of_go_programs():
    assert ports.is_port_conflict("listen tcp 127.0.0.1:20001: bind: address already in use")
    assert not ports.is_port_conflict("permission denied")
