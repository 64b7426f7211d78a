"""The peers are the versions that the results name, and benchmarks alone build them."""

import re
from pathlib import Path

import pytest

from benchmarks.stock import peers
from trainer_operator.devcluster.assets import PROGRAMS
from trainer_operator.devcluster.paths import cache_root

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.program)
def test_pinned_module_is_the_version_that_results_name(peer):
    pinned = (TOOLS / peer.module / "go.mod").read_text()
    assert re.search(rf"^\t{re.escape(peer.source)} {re.escape(peer.version)}( // indirect)?$", pinned, re.M)
    assert f"tool {peer.target().package}\n" in pinned


def test_peers_are_no_programs_of_the_control_plane():
    assert not {peer.program for peer in peers.PEERS} & set(PROGRAMS)


def test_other_pins_are_built_into_another_folder(tmp_path):
    for peer in peers.PEERS:
        folder = tmp_path / peer.module
        folder.mkdir(parents=True)
        (folder / "go.sum").write_text("one")
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = peers.folder(environ, tools=tmp_path)
    assert first.parent == cache_root(environ) / "peers"
    (tmp_path / peers.KWOK.module / "go.sum").write_text("two")
    assert peers.folder(environ, tools=tmp_path) != first
