"""The demo as a whole, as far as it goes without a cluster."""

import pytest

from trainer_operator.demo.performance import Options, Performance
from trainer_operator.devcluster import state
from trainer_operator.devcluster.cluster import Cluster
from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.filelock import locked


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))  # nothing can be started here


class Silence:
    """Shows nothing."""

    def show(self, frame):
        self.last = frame


async def test_a_cluster_that_is_up_already_is_left_alone(monkeypatch):
    monkeypatch.setattr(Cluster, "down", lambda self: pytest.fail("it is another demo's"))
    folder = Cluster("demo").folder
    folder.mkdir(parents=True)
    (folder / "its-own").touch()
    with locked(folder / state.LOCK):
        async with Performance(Options()) as performance:
            with pytest.raises(ClusterFault, match="the cluster demo is up already"):
                await performance.run(Silence())
    assert (folder / "its-own").exists()


async def test_a_cluster_that_does_not_start_is_told_in_a_sentence_and_taken_down():
    async with Performance(Options(name="other")) as performance:
        with pytest.raises(ClusterFault, match="has no etcd"):
            await performance.run(Silence())
    assert not Cluster("other").is_running()


def test_a_name_that_cannot_be_a_cluster_is_refused():
    with pytest.raises(ClusterFault, match="not allowed"):
        Performance(Options(name="../x"))
