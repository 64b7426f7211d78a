"""The environment of the frameworks: what PyTorch, TensorFlow and JAX find, for each role."""

import json

import pytest

from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.environment import frameworks, peers_of, world_size

MASTER = MemberId("master", 0)
W0, W1 = MemberId("worker", 0), MemberId("worker", 1)
PS0, PS1 = MemberId("ps", 0), MemberId("ps", 1)
ADDRESSES = {
    PS1: ("10.0.2.1", 31001),
    W1: ("10.0.1.1", 30001),
    MASTER: ("10.0.0.0", 29000),
    PS0: ("10.0.2.0", 31000),
    W0: ("10.0.1.0", 30000),
}


def of(member, *members, uid="uid", epoch=7):
    peers = peers_of({one: ADDRESSES[one] for one in members or ADDRESSES})
    return frameworks(peers, member, uid=uid, epoch=epoch)


def test_ranks_are_the_order_of_role_and_index_with_servers_in_their_own():
    """ME2."""
    ranks = {peer.member: peer.rank for peer in peers_of(ADDRESSES)}
    assert ranks == {MASTER: 0, W0: 1, W1: 2, PS0: 0, PS1: 1}
    assert world_size(peers_of(ADDRESSES)) == 3


def test_without_a_master_worker_0_is_rank_0():
    """ME2."""
    ranks = {peer.member: peer.rank for peer in peers_of({W1: ("a", 1), W0: ("b", 2)})}
    assert ranks == {W0: 0, W1: 1}


@pytest.mark.parametrize(
    ("member", "rank"), [(MASTER, "0"), (W0, "1"), (W1, "2")], ids=["master", "worker 0", "worker 1"]
)
def test_pytorch_and_jax_find_their_rank_and_one_meeting_point(member, rank):
    """ME2, ME4."""
    environment = of(member)
    assert environment["RANK"] == environment["PET_NODE_RANK"] == environment["JAX_PROCESS_ID"] == rank
    assert environment["WORLD_SIZE"] == environment["PET_NNODES"] == environment["JAX_NUM_PROCESSES"] == "3"
    assert environment["MASTER_ADDR"] == environment["PET_MASTER_ADDR"] == "10.0.0.0"
    assert environment["MASTER_PORT"] == environment["PET_MASTER_PORT"] == "29000"
    assert environment["JAX_COORDINATOR_ADDRESS"] == "10.0.0.0:29000"
    assert environment["PET_NPROC_PER_NODE"] == "1"


@pytest.mark.parametrize("member", [PS0, PS1])
def test_a_server_knows_the_world_but_has_no_rank_in_it(member):
    environment = of(member)
    assert environment["WORLD_SIZE"] == "3"
    assert not {"RANK", "PET_NODE_RANK", "JAX_PROCESS_ID"} & set(environment)


@pytest.mark.parametrize(
    ("member", "task"),
    [
        (MASTER, {"type": "chief", "index": 0}),
        (W0, {"type": "worker", "index": 0}),
        (W1, {"type": "worker", "index": 1}),
        (PS0, {"type": "ps", "index": 0}),
        (PS1, {"type": "ps", "index": 1}),
    ],
)
def test_tensorflow_finds_the_whole_cluster_and_its_task(member, task):
    """ME4."""
    assert json.loads(of(member)["TF_CONFIG"]) == {
        "cluster": {
            "chief": ["10.0.0.0:29000"],
            "worker": ["10.0.1.0:30000", "10.0.1.1:30001"],
            "ps": ["10.0.2.0:31000", "10.0.2.1:31001"],
        },
        "task": task,
    }


def test_tensorflow_sees_no_role_that_is_not_there():
    cluster = json.loads(of(W0, W0, W1)["TF_CONFIG"])["cluster"]
    assert set(cluster) == {"worker"}


def test_the_index_in_tensorflows_cluster_has_no_gaps():
    """ME3: an epoch may go on without a member; its list is what counts."""
    addresses = {W0: ("a", 1), MemberId("worker", 5): ("b", 2)}
    config = frameworks(peers_of(addresses), MemberId("worker", 5), uid="u", epoch=1)["TF_CONFIG"]
    assert json.loads(config)["task"] == {"type": "worker", "index": 1}


def test_two_trainers_and_two_epochs_never_share_a_rendezvous():
    """ME2, TR46."""
    found = {of(W0, uid=uid, epoch=epoch)["PET_RDZV_ID"] for uid in ("one", "two") for epoch in (1, 2)}
    assert len(found) == 4


def test_servers_alone_have_no_world_to_describe():
    assert of(PS0, PS0, PS1) == {}


def test_a_peer_on_the_wire_is_what_agents_read():
    assert peers_of({W0: ("10.0.1.0", 30000)})[0].to_wire() == {
        "role": "worker",
        "index": 0,
        "rank": 0,
        "address": "10.0.1.0",
        "port": 30000,
    }
