"""Chunks from other pods: only for members of this epoch, only what matches its hash, and never a loss (RS2, FT17)."""

import contextlib
import hashlib
import http.client
import itertools
import os
import socket
import stat
import threading

import pytest

from trainer_operator.agent.chunkcache import ChunkCache
from trainer_operator.agent.peers import ChunkServer, Keys, Peer, Peers, Roster, read_roster, write_roster
from trainer_operator.agent.peers.keys import CHUNKS, sign
from trainer_operator.agent.peers.roster import parse_peers
from trainer_operator.agent.peers.serving import PART_BYTES

KEY, OTHER_KEY = "ab" * 32, "cd" * 32
SMALL = b"a piece of a tensor" * 50


def name_of(data):
    return hashlib.sha256(data).hexdigest()


class Room:
    """Agents that serve, and restores that fetch from them."""

    def __init__(self, folder, stack):
        self.folder, self.stack, self.count = folder, stack, 0

    def agent(self, *chunks, epoch=3, key=KEY, trainer="uid", **bounds):
        """Serve these chunks; return where."""
        self.count += 1
        cache = ChunkCache(str(self.folder / f"agent-{self.count}"), free_share=0.0)
        for chunk in chunks:
            cache.keep(name_of(chunk), chunk)
        keys = Keys(trainer)
        keys.learn(epoch, key)
        server = ChunkServer("127.0.0.1", open_chunk=cache.open, keys=keys, **bounds)
        self.stack.callback(server.close)
        return Peer("127.0.0.1", server.port)

    def standin(self, answer):
        """Listen, and answer every connection with these bytes, or in any other way."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.stack.callback(listener.close)

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5)
                    connection.recv(65536)
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        return Peer(*listener.getsockname())

    def restore(self, *peers, epoch=3, key=KEY, trainer="uid", **times):
        found = Peers(Roster(trainer, epoch, key, peers), **times)
        self.stack.callback(found.close)
        return found


@pytest.fixture
def room(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Room(tmp_path, stack)


def request(peer, path, *, headers):
    connection = http.client.HTTPConnection(peer.address, peer.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def signed(path, part="bytes=0-9", *, key=KEY, trainer="uid", epoch=3):
    return {"Range": part, "Authorization": sign(key, trainer=trainer, epoch=epoch, path=path, part=part)}


def test_a_chunk_longer_than_one_answer_comes_in_parts_over_one_connection(room):
    """RS2: ranged GET, bounded answers."""
    data = os.urandom(2 * PART_BYTES + 17)
    peer = room.agent(data, connections=1)
    assert room.restore(peer).fetch(name_of(data), length=len(data)) == data


@pytest.mark.parametrize(
    "other", [{"key": OTHER_KEY}, {"trainer": "another"}, {"epoch": 2}, {"epoch": 4}], ids=str
)
def test_another_trainer_and_another_epoch_are_refused(room, other):
    """FT17, TN6."""
    peer = room.agent(SMALL)
    assert room.restore(peer, **other).fetch(name_of(SMALL), length=len(SMALL)) is None
    path = CHUNKS + name_of(SMALL)
    assert request(peer, path, headers=signed(path, **other))[0] == 401


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (CHUNKS + "ab" * 32, {}, 401),
        (CHUNKS + "ab" * 32, {"Range": "bytes=0-9", "Authorization": "Trainer-Epoch é"}, 401),
        (CHUNKS + "ab" * 32, {**signed(CHUNKS + "ab" * 32), "Range": "bytes=0-99"}, 401),
        (CHUNKS + "ab" * 32, signed(CHUNKS + "ab" * 32), 404),
        (CHUNKS + "../../../etc/passwd", signed(CHUNKS + "../../../etc/passwd"), 404),
        ("/livez", signed("/livez"), 404),
        (CHUNKS + name_of(SMALL), signed(CHUNKS + name_of(SMALL), ""), 416),
        (CHUNKS + name_of(SMALL), signed(CHUNKS + name_of(SMALL), "bytes=9-0"), 416),
        (CHUNKS + name_of(SMALL), signed(CHUNKS + name_of(SMALL), f"bytes=0-{PART_BYTES}"), 416),
        (CHUNKS + name_of(SMALL), signed(CHUNKS + name_of(SMALL), "bytes=5000-5001"), 416),
        (CHUNKS + name_of(SMALL), signed(CHUNKS + name_of(SMALL)), 206),
    ],
    ids=[
        "unsigned", "garbled", "other-range", "absent", "traversal", "other-path", "no-range", "backwards",
        "too-long", "behind-the-end", "good",
    ],
)  # fmt: skip
def test_an_agent_serves_parts_of_chunks_and_nothing_else(room, path, headers, status):
    """TN10, AA7: bounded."""
    answer, body = request(room.agent(SMALL), path, headers={k: v.encode() for k, v in headers.items()})
    assert answer == status
    assert (body == SMALL[:10]) == (status == 206)


def test_a_busy_agent_sends_the_next_one_away_and_the_restore_goes_on(room):
    """RS2: bounded transfers; whoever is busy is asked again for the next chunk."""
    busy = room.agent(SMALL, transfers=1)
    release, taken = threading.Event(), threading.Event()

    def hold(_sha256):
        taken.set()
        release.wait(30)

    slow = ChunkServer("127.0.0.1", open_chunk=hold, keys=_keys(), transfers=1)
    room.stack.callback(slow.close)
    peer, path = Peer("127.0.0.1", slow.port), CHUNKS + name_of(SMALL)
    first = threading.Thread(target=request, args=(peer, path), kwargs={"headers": signed(path)})
    first.start()
    assert taken.wait(30)
    try:
        restore = room.restore(peer, busy)
        assert all(restore.fetch(name_of(SMALL), length=len(SMALL)) == SMALL for _ in range(4))
        assert restore.liars == []
    finally:
        release.set()
        first.join(30)


def _keys():
    keys = Keys("uid")
    keys.learn(3, KEY)
    return keys


def test_more_connections_than_allowed_are_hung_up_on(room):
    """AA7: no neighbour can fill the agent with threads."""
    peer = room.agent(SMALL, connections=1)
    with socket.create_connection((peer.address, peer.port), timeout=10) as first:
        first.sendall(b"GET / HTTP/1.1\r\n")
        with socket.create_connection((peer.address, peer.port), timeout=10) as second:
            assert second.recv(1) == b""


HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n"


def _lie(connection):
    connection.sendall(HEAD % len(SMALL) + bytes(len(SMALL)))


def _half(connection):
    connection.sendall(HEAD % len(SMALL) + SMALL[:300])


def _silent(connection):
    connection.recv(1)


def _trickle(connection):
    connection.sendall(HEAD % len(SMALL) + SMALL[:1])
    for octet in SMALL[1:]:
        connection.sendall(bytes([octet]))
        threading.Event().wait(0.05)


FAULTS = {
    "lies": _lie,
    "dies": _half,
    "hangs-up": lambda _connection: None,
    "silent": _silent,
    "slow": _trickle,
    "garbage": lambda connection: connection.sendall(b"\x00\xff" * 4000),
    "too-much": lambda connection: connection.sendall(HEAD % 10**12 + bytes(100_000)),
    "fails": lambda connection: connection.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    "endless-header": lambda connection: connection.sendall(b"HTTP/1.1 206 OK\r\n" + b"X: y\r\n" * 9000),
}


def every_four_seconds():
    """A clock by which a part that comes in three pieces or more is slow."""
    return itertools.count(0.0, 4.0).__next__


@pytest.mark.parametrize("fault", FAULTS)
def test_a_peer_with_a_fault_costs_nothing_but_its_help(room, fault):
    """RS2: lying, dying, slow or gone, the chunk comes from elsewhere, whole."""
    bad = room.standin(FAULTS[fault])
    alone = room.restore(bad, silence=0.5, clock=every_four_seconds())
    assert alone.fetch(name_of(SMALL), length=len(SMALL)) is None
    assert alone.fetch(name_of(SMALL), length=len(SMALL)) is None
    assert (alone.liars == [str(bad)]) == (fault in {"lies", "too-much"})
    good = room.agent(SMALL)
    restore = room.restore(bad, good, clock=every_four_seconds())
    fetched = [restore.fetch(name_of(SMALL), length=len(SMALL)) for _ in range(3)]
    assert set(fetched) <= {SMALL, None}
    assert fetched.count(None) <= (
        fault in {"lies", "too-much"}
    )  # then the store has it, and nobody asks again


def test_the_next_peer_goes_on_where_one_died(room, monkeypatch):
    """RS2: no byte is fetched twice."""
    good, dying = room.agent(SMALL), room.standin(_half)
    restore = room.restore(dying, good)
    monkeypatch.setattr(restore, "_order", lambda: [dying, good])
    asked = []
    ask = restore._ask
    monkeypatch.setattr(restore, "_ask", lambda *given: (asked.append(given[2]), ask(*given))[1])
    assert restore.fetch(name_of(SMALL), length=len(SMALL)) == SMALL
    assert asked == [0, 300]


def test_a_peer_that_is_gone_is_passed_over(room):
    """RS2."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = Peer(*listener.getsockname())
    assert room.restore(gone, room.agent(SMALL)).fetch(name_of(SMALL), length=len(SMALL)) == SMALL


def test_a_damaged_file_of_a_peer_is_noticed_by_the_receiver(room):
    """RS2: verified by hash by whoever uses it."""
    peer = room.agent(SMALL)
    (path,) = (room.folder / "agent-1").iterdir()
    path.write_bytes(SMALL[:-1] + b"?")
    restore = room.restore(peer)
    assert restore.fetch(name_of(SMALL), length=len(SMALL)) is None
    assert restore.liars == [str(peer)]


def test_two_keys_of_the_newest_epoch_hold_and_none_of_an_older_one():
    """FT17: a leader that takes over makes a new key, and not all agents hear of it at once."""
    keys = Keys("uid")

    def allows(key, epoch):
        path = CHUNKS + "00"
        return keys.allows(sign(key, trainer="uid", epoch=epoch, path=path, part="p"), path=path, part="p")

    assert not allows(KEY, 0)
    keys.learn(1, KEY)
    keys.learn(1, OTHER_KEY)
    assert allows(KEY, 1)
    assert allows(OTHER_KEY, 1)
    assert keys.newest(1) == OTHER_KEY
    keys.learn(1, "ef" * 32)
    assert not allows(KEY, 1)
    keys.learn(2, KEY)
    assert allows(KEY, 2)
    assert not any(allows(key, 1) for key in (KEY, OTHER_KEY, "ef" * 32))
    keys.learn(1, OTHER_KEY)
    keys.learn(3, "no key")
    assert keys.newest(2) == KEY
    assert keys.newest(1) == ""


def test_a_roster_is_for_its_owner_only_and_comes_back_as_it_was(tmp_path):
    """PS4: no environment, which ends up in logs."""
    path = str(tmp_path / "peers")
    roster = Roster("uid", 3, KEY, (Peer("10.0.0.1", 4000), Peer("fd00::1", 4001)))
    write_roster(path, roster)
    assert read_roster(path) == roster
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    write_roster(path, None)
    assert read_roster(path) is None
    write_roster(str(tmp_path / "nowhere" / "peers"), roster)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"trainer":"u","epoch":1,"key":"x","peers":[]}'])
def test_a_roster_that_cannot_be_read_is_none(tmp_path, text):
    """RS2: then the store alone is asked."""
    (tmp_path / "peers").write_text(text)
    assert read_roster(str(tmp_path / "peers")) is None


def test_peers_are_bounded_and_malformed_ones_are_passed_over():
    """CK5."""
    bad = [
        None,
        1,
        {},
        {"address": "", "port": 1},
        {"address": "a", "port": 0},
        {"address": "a", "port": "1"},
    ]
    assert parse_peers(bad) == parse_peers("x") == parse_peers(None) == ()
    assert len(parse_peers([{"address": "10.0.0.1", "port": 1}] * 100)) == 16
