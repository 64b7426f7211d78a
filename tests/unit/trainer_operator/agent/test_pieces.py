"""Pieces on their way into the store: read by whoever writes them, into memory that is used again."""

import threading

import pytest

from memorystore import MemoryStore
from trainer_operator.agent import copying, index, packed, store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.cutting import Piece
from trainer_operator.agent.parallel import WIDTH
from trainer_operator.agent.pieces import PieceReader
from trainer_operator.agent.records import Malformed

MIB = 1024 * 1024


@pytest.fixture
def source(tmp_path):
    """A packed file of two tensors."""
    path = str(tmp_path / "spool")
    sources = [
        packed.Source("a", "|u1", (6,), memoryview(b"abcdef")),
        packed.Source("b", "|u1", (3,), memoryview(b"xyz")),
    ]
    packed.write(path, sources, step=1, ps_epoch=0, meta={}, hashed=False)
    return packed.read_header(path)


@pytest.fixture
def reader(source):
    found = PieceReader(source, longest=6)
    yield found
    found.close()


def piece(start, length):
    return Piece(((0, None),), length, start)


def test_a_piece_is_read_from_where_it_lies(reader):
    """CK3: pieces of one tensor, and of the next."""
    for start, length, expected in [(0, 6, b"abcdef"), (2, 3, b"cde"), (6, 3, b"xyz")]:
        with reader.content(piece(start, length)) as content:
            assert bytes(content) == expected


def test_what_was_put_together_needs_no_file(reader):
    """CK3: a pack of small tensors is in memory already."""
    with reader.content(Piece((), 4, data=b"pack")) as content:
        assert content == b"pack"


def test_pieces_that_are_open_at_a_time_do_not_share_memory(reader):
    """FZ3: two threads each have their own; whoever comes later gets one of theirs."""
    with reader.content(piece(0, 6)) as first, reader.content(piece(6, 3)) as second:
        assert (bytes(first), bytes(second)) == (b"abcdef", b"xyz")
        kept = [first.obj, second.obj]
    with reader.content(piece(0, 3)) as again:
        assert again.obj in kept


def test_a_piece_cannot_be_read_once_it_was_given_back(reader):
    """IV3: a store that kept it would find the next one's content there."""
    with reader.content(piece(0, 6)) as content:
        pass
    with pytest.raises(ValueError, match="released"):
        bytes(content)


def test_a_file_that_was_cut_short_meanwhile_is_not_taken_for_data(reader, source):
    """IV11: the header had been checked before."""
    with open(source.path, "r+b") as file:
        file.truncate(source.data_start + 7)
    with reader.content(piece(0, 6)) as content:
        assert bytes(content) == b"abcdef"
    with pytest.raises(Malformed, match="ends before its last tensor"), reader.content(piece(6, 3)):
        pass


def test_a_copy_of_many_pieces_has_each_where_it_belongs(tmp_path):
    """FZ3, IV3: more pieces than threads, of several tensors, written at the same time; all of it is read back."""
    state = {
        name: b"".join(bytes([code, n]) * (8 * MIB) for n in range(5)) for name, code in (("a", 1), ("b", 2))
    }
    path, where = (
        str(tmp_path / "spool"),
        store.CheckpointDir(Home(MemoryStore(), "t"), "000000000001-e1-00ab"),
    )
    sources = [packed.Source(name, "|u1", (len(data),), memoryview(data)) for name, data in state.items()]
    packed.write(path, sources, step=1, ps_epoch=0, meta={}, hashed=False)
    done = copying.write_copy(where, packed.read_header(path), shard=0, copy=0, epoch=1)
    store.write_ack(where, 0, 0, ack=done.ack("pod", "node", step=1, epoch=1))
    store.decide_commit(where, shards=1, copies=1, step=1, epoch=1, reason="r", nonce="n")
    found, data = index.read_shard(where, 0)
    assert {name: bytes(content) for name, content in data.items()} == state
    assert len(list(found.chunks())) == 10 > WIDTH


def test_a_copy_that_fails_is_reported_after_its_last_write_ended(tmp_path):
    """QR3: a view whose memory is given back must not be on its way to the store any more."""
    lock, both, begun, running = threading.Lock(), threading.Barrier(2), [0], set()

    class Refusing(MemoryStore):
        def create(self, key, data):
            with lock:
                begun[0] += 1
                number = begun[0]
                running.add(number)
            try:
                if number <= 2:
                    both.wait(60)
                if number == 1:
                    raise OSError("no")
                super().create(key, data)
            finally:
                with lock:
                    running.discard(number)

    data = b"".join(bytes([n]) * (16 * MIB) for n in range(4))
    memory, path = Refusing(), str(tmp_path / "spool")
    where = store.CheckpointDir(Home(memory, "t"), "000000000001-e1-00ab")
    packed.write(
        path, [packed.Source("a", "|u1", (len(data),), memoryview(data))], step=1, ps_epoch=0, meta={}
    )
    with pytest.raises(OSError, match="no"):
        copying.write_copy(where, packed.read_header(path), shard=0, copy=0, epoch=1)
    assert not running
    assert where.index(0, 0) not in memory.objects
