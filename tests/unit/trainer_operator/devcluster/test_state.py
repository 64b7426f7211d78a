"""The state file."""

import pytest

from trainer_operator.devcluster import state
from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.state import ClusterState, Member, Phase, Settings

STATE = ClusterState(
    "default",
    Phase.READY,
    42,
    Settings(nodes=2),
    url="https://x",
    kubeconfig="/k",
    members={"etcd": Member(7, 1)},
)


def test_state_survives_the_file(tmp_path):
    state.save(tmp_path, STATE)
    assert state.load(tmp_path) == STATE
    assert [path.name for path in tmp_path.iterdir()] == [state.FILE]


def test_cluster_that_never_was_has_no_state(tmp_path):
    assert state.load(tmp_path) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"phase": "ready"}', STATE.to_json().replace("ready", "?")]
)
def test_file_that_is_not_ours_is_refused_with_its_path(tmp_path, text):
    (tmp_path / state.FILE).write_text(text)
    with pytest.raises(ClusterFault, match=f"{state.FILE} is not a cluster's state"):
        state.load(tmp_path)


def test_nodes_are_numbered_from_zero():
    assert Settings(nodes=3).node_names() == ("node-0", "node-1", "node-2")


@pytest.mark.parametrize("value", ["0", "-1", "many", "", "1 Gi", "1gi"])
def test_capacity_that_is_no_quantity_is_refused_by_name(value):
    with pytest.raises(ClusterFault, match=r"processors .* is not a positive Kubernetes quantity such as 32"):
        Settings(cpu=value).check()
    with pytest.raises(ClusterFault, match=r"memory .* is not a positive"):
        Settings(memory=value).check()
    Settings(cpu="1500m", memory="512Mi").check()
