"""Folders of the development cluster."""

import pytest

from trainer_operator.devcluster import paths
from trainer_operator.devcluster.errors import ClusterFault


def test_xdg_folders_are_honoured():
    environ = {"HOME": "/home/someone", "XDG_CACHE_HOME": "/fast/cache", "XDG_STATE_HOME": "/big/state"}
    assert str(paths.cache_root(environ)) == "/fast/cache/trainer-operator"
    assert str(paths.cluster_folder("default", environ=environ)) == "/big/state/trainer-operator/default"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_unset_or_relative_xdg_folder_is_passed_over(value):
    environ = {"HOME": "/home/someone", "XDG_CACHE_HOME": value, "XDG_STATE_HOME": value}
    assert str(paths.cache_root(environ)) == "/home/someone/.cache/trainer-operator"
    assert str(paths.state_root(environ)) == "/home/someone/.local/state/trainer-operator"


@pytest.mark.parametrize("name", ["", "..", "../other", "a/b", "-a", "a-", "Upper", "a" * 33, "a\n"])
def test_cluster_name_that_could_leave_the_state_folder_is_refused(name):
    with pytest.raises(ClusterFault, match="is not allowed: use up to 32"):
        paths.cluster_folder(name, environ={"HOME": "/home/someone"})
