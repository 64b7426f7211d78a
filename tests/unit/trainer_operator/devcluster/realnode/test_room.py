"""What outlives a room, and who may be in one."""

import pytest

from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.realnode.config import CGROUP
from trainer_operator.devcluster.realnode.room import VARIABLE, remove_groups, require_room


def test_control_groups_of_an_ended_room_are_removed_in_every_hierarchy(tmp_path):
    for hierarchy in ("memory", "pids"):
        (tmp_path / hierarchy / CGROUP / "pod" / "container").mkdir(parents=True)
        (tmp_path / hierarchy / "others").mkdir()
    remove_groups(tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "memory",
        "memory/others",
        "pids",
        "pids/others",
    ]


def test_control_group_that_stays_is_named(tmp_path):
    (tmp_path / CGROUP / "pod").mkdir(parents=True)
    (tmp_path / CGROUP / "pod" / "in-use").touch()
    with pytest.raises(ClusterFault, match=f"{CGROUP} of an earlier node cannot be removed"):
        remove_groups(tmp_path, patience=0.0)


def test_node_is_refused_outside_of_a_room(tmp_path):
    with pytest.raises(ClusterFault, match="make e2e"):
        require_room({})
    assert require_room({VARIABLE: str(tmp_path)}) == tmp_path
