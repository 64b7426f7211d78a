"""A pod's part in restores: what it serves, whom its process may ask, and what each beat tells of it (RS2, FT17)."""

import hashlib
from dataclasses import replace

import pytest

from trainer_operator.agent.chunkcache import ChunkCache
from trainer_operator.agent.peers import Peer, Peers, Roster, open_peers, read_roster
from trainer_operator.agent.settings import read_settings
from trainer_operator.agent.sharing import Sharing

KEYS = {epoch: f"{epoch:064x}" for epoch in (1, 2)}
DATA = b"a chunk" * 40
NAME = hashlib.sha256(DATA).hexdigest()
CKPT = "000000000040-e1-00ab"
SOURCES = {"own": 1, "peer": 2, "store": 3}


@pytest.fixture
def settings(tmp_path):
    names = ("NAME", "NAMESPACE", "UID", "POD_UID")
    environment = {**{f"TRAINER_{name}": name.lower() for name in names}, "TRAINER_ROLE": "worker"}
    read = read_settings({**environment, "TRAINER_STORE": "/srv/store"}, folder=str(tmp_path))
    ChunkCache(read.cache_folder, free_share=0.0).keep(NAME, DATA)
    return read


@pytest.fixture
def news():
    return []


@pytest.fixture
def sharing(settings, news):
    made = Sharing(settings, news=lambda: news.append(1), log=lambda _line: None)
    made.start()
    yield made
    made.close()


def fetch(sharing, *, epoch):
    here = Peer("127.0.0.1", sharing.told()["chunkPort"])
    peers = Peers(Roster("uid", epoch, KEYS[epoch], (here,)))
    try:
        return peers.fetch(NAME, length=len(DATA))
    finally:
        peers.close()


def test_it_serves_members_of_the_newest_epoch_that_the_operator_told(sharing):
    """FT17: nobody before the first key, and nobody of an epoch that is over."""
    assert fetch(sharing, epoch=1) is None
    sharing.learn(1, KEYS[1])
    assert fetch(sharing, epoch=1) == DATA
    sharing.learn(2, KEYS[2])
    assert fetch(sharing, epoch=1) is None
    sharing.learn(1, KEYS[1])
    assert fetch(sharing, epoch=1) is None
    assert fetch(sharing, epoch=2) == DATA


def test_without_a_store_nothing_is_served(settings):
    """RS2: there is nothing to give."""
    alone = Sharing(replace(settings, store=""), news=lambda: None, log=lambda _line: None)
    alone.start()
    assert alone.told() == {"chunkPort": 0, "holds": [], "restored": None, "waits": ""}
    alone.close()


def test_an_address_that_is_not_ours_keeps_nobody_from_starting(settings):
    """RS2."""
    lines = []
    away = Sharing(replace(settings, pod_ip="192.0.2.1"), news=lambda: None, log=lines.append)
    away.start()
    assert away.told()["chunkPort"] == 0
    assert lines[0].startswith("chunks are not served to other pods: ")
    away.close()


def test_a_process_may_ask_those_that_its_start_names_with_the_key_of_its_epoch(sharing, settings):
    """RS2: without a key of this epoch nobody, and never those of the start before."""
    sharing.learn(2, KEYS[2])
    sharing.starts({"peers": [{"address": "10.0.0.1", "port": 4000}]}, 2)
    assert read_roster(settings.roster_file) == Roster("uid", 2, KEYS[2], (Peer("10.0.0.1", 4000),))
    sharing.starts({"peers": [{"address": "10.0.0.1", "port": 4000}]}, 1)
    assert read_roster(settings.roster_file) is None
    sharing.starts({"peers": [{"address": "10.0.0.1", "port": 4000}]}, 2)
    sharing.starts({}, 2)
    assert open_peers(settings.roster_file).fetch(NAME, length=len(DATA)) is None


def test_it_tells_the_last_two_saves_and_after_a_restore_what_was_read(sharing, news):
    """RS2: as the cache keeps them."""
    for number in (1, 2, 2, 3):
        sharing.saved(f"c{number}", 0)
    assert sharing.told()["holds"] == ["c2/0", "c3/0"]
    sharing.restored({"t": "restored", "ckpt": CKPT, "shard": 1, "liars": ["10.0.0.9:1"] * 9, **SOURCES})
    told = sharing.told()
    assert told["holds"] == [f"{CKPT}/1"]
    assert told["restored"] == {"ckpt": CKPT, "liars": ["10.0.0.9:1"] * 4, **SOURCES}
    assert news == [1]
    sharing.starts({}, 1)
    assert sharing.told()["restored"] is None


@pytest.mark.parametrize("broken", [{}, {"ckpt": CKPT}, {"ckpt": CKPT, "shard": "x", **SOURCES}, {"ckpt": 1}])
def test_a_malformed_report_changes_nothing(sharing, broken):
    """AA7: the process is not ours."""
    before = sharing.told()
    with pytest.raises((KeyError, TypeError, ValueError)):
        sharing.restored(broken)
    assert sharing.told() == before


def test_a_wait_is_news_when_it_begins_and_when_it_ends(sharing, news):
    """TX6."""
    for reason in ("Unreachable: a", "Unreachable: b", "", ""):
        sharing.waits(reason)
    assert len(news) == 2
    sharing.waits("w" * 5000)
    assert len(sharing.told()["waits"]) == 512
