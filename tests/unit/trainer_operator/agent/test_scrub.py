"""The scrub: what it finds in a damaged store, what it mends, and what it leaves alone."""

import pytest

from memorystore import Died, Fault, MemoryStore
from storecontract import patient
from trainer_operator.agent import collection, copies, copying, index, packed, scrub, store
from trainer_operator.agent.backends import Home, NoRights, StoreChanged, Unreachable
from trainer_operator.agent.store import Ack, CheckpointDir
from trainer_operator.agent.storeops import BadArguments

CKPT = "000000000040-e2-00ab"
TENSORS = {"w": b"0123456789" * 100, "layer/b": b"bias", "again": b"bias", "empty": b""}


class Readonly(MemoryStore):
    """A store that refuses to be written to, once it is told so."""

    refuses = False

    def create(self, key, data):
        if self.refuses:
            raise NoRights("the store is mounted read-only")
        super().create(key, data)

    def put(self, key, data):
        if self.refuses:
            raise NoRights("the store is mounted read-only")
        super().put(key, data)


class Case:
    """A committed checkpoint in memory, and a scrub of it that never waits."""

    def __init__(self, folder, *, made=(0, 1), planned=2, shards=1):
        self.memory = Readonly()
        self.home = Home(patient(self.memory), "t-01234567")
        self.where = CheckpointDir(self.home, CKPT)
        self.id = store.identify(self.home)
        sources = [packed.Source(n, "|u1", (len(d),), memoryview(d)) for n, d in TENSORS.items()]
        path = str(folder / "source")
        packed.write(path, sources, step=40, ps_epoch=0, meta={})
        self.source = packed.read_header(path)
        store.write_intent(self.where, {"ckpt": CKPT, "step": 40, "copies": planned})
        for shard in range(shards):
            for copy in made:
                self.write(shard, copy)
        store.decide_commit(
            self.where, shards=shards, copies=planned, step=40, epoch=2, reason="Interval", nonce="n"
        )
        self.before = dict(self.memory.objects)

    def write(self, shard, copy):
        written = copying.write_copy(self.where, self.source, shard=shard, copy=copy, epoch=2, packed_below=0)
        ack = Ack(written.sha256, written.bytes, "pod", "node", 40, 2)
        store.write_ack(self.where, shard, copy, ack=ack)

    def scrub(self, **arguments):
        throttle = scrub.Throttle(1e9, clock=lambda: 0.0, pause=lambda seconds: None)
        return scrub.Scrub(self.where, throttle=throttle).run(**arguments)

    def chunks(self, copy):
        return sorted(key for key in self.memory.objects if key.startswith(self.where.chunks(copy)))

    def flip(self, key):
        content = self.memory.objects[key]
        self.memory.objects[key] = bytes([content[0] ^ 1]) + content[1:]


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path)


def test_a_sound_checkpoint_is_read_in_full_and_nothing_is_written(case):
    """PB1: each object once, however many tensors share it."""
    report = case.scrub(store_id=case.id)
    assert (report.bad, report.lost, report.lacking, report.repaired) == ([], [], 0, 0)
    assert report.bytes == sum(
        len(data) for key, data in case.before.items() if "/c" in key[20:] or key.endswith(".idx")
    )
    assert case.memory.objects == case.before


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("how", ["flipped", "cut", "longer", "empty", "missing"])
def test_a_bad_chunk_is_written_again_from_the_other_copy(case, number, how):
    """PB2, KT3: one pass finds and repairs it, under the same key."""
    key = case.chunks(0)[number]
    content = case.memory.objects.pop(key)
    damaged = {"flipped": b"x" + content[1:], "cut": content[:-1], "longer": content + b"x", "empty": b""}
    if how != "missing":
        case.memory.objects[key] = damaged[how]
    report = case.scrub()
    assert (report.damaged, report.missing) == ((0, 1) if how == "missing" else (1, 0))
    assert report.bad == [
        f"ckpt/{CKPT}/{key.partition(CKPT + '/')[2]} is {'missing' if how == 'missing' else 'damaged'}"
    ]
    assert (report.repaired, report.lacking, report.lost) == (1, 0, [])
    assert case.memory.objects == case.before
    assert case.scrub().bad == []


@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_a_bad_index_is_written_again_from_that_of_the_other_copy(case, how):
    """PB2: only if it is then what DECISION names."""
    key = case.where.index(0, 1)
    if how == "missing":
        del case.memory.objects[key]
    else:
        case.flip(key)
    report = case.scrub()
    assert (report.repaired, report.lacking, report.lost) == (1, 0, [])
    assert case.memory.objects == case.before


def test_copies_that_are_bad_in_different_places_mend_each_other(case):
    """PB2, CK4: no single copy is whole, and nothing is lost."""
    case.flip(case.chunks(0)[0])
    del case.memory.objects[case.chunks(1)[1]]
    report = case.scrub()
    assert (report.damaged, report.missing, report.repaired, report.lost) == (1, 1, 2, [])
    assert case.memory.objects == case.before


def test_a_chunk_that_is_bad_in_every_copy_loses_the_shard_and_nothing_is_deleted(tmp_path):
    """PB2: else Corrupt; the prober never deletes."""
    case = Case(tmp_path, shards=2)
    for copy in (0, 1):
        case.flip(case.chunks(copy)[0])
    before = dict(case.memory.objects)
    report = case.scrub()
    assert (report.lost, report.lacking, report.repaired) == ([0, 1], 4, 0)
    assert case.memory.objects == before


def test_a_shard_without_a_readable_index_is_lost(case):
    """PB2."""
    for copy in (0, 1):
        case.flip(case.where.index(0, copy))
    report = case.scrub()
    assert (report.lost, report.lacking, len(report.bad)) == ([0], 2, 2)


@pytest.mark.parametrize("how", ["missing", "torn"])
def test_without_its_decision_a_checkpoint_is_lost(case, how):
    """PB4, CK1: committed, but the file is missing."""
    key = case.where.record("DECISION")
    if how == "missing":
        del case.memory.objects[key]
    else:
        case.memory.objects[key] = case.memory.objects[key][:10]
    report = case.scrub(store_id=case.id)
    assert report.lost == [0]
    assert report.bad == [f"ckpt/{CKPT}/DECISION is {'missing' if how == 'missing' else 'damaged'}"]


def test_a_copy_that_nobody_completed_is_made_and_counts_from_then_on(tmp_path):
    """PB3, QR5."""
    case = Case(tmp_path, made=(0, 2), planned=3)
    report = case.scrub()
    assert (report.completed, report.lacking, report.bad) == (1, 0, [])
    assert copies.known(case.where, store.read_decision(case.where))[0].keys() == {0, 1, 2}
    assert {key for key in case.memory.objects if key not in case.before} == {
        case.where.index(0, 1),
        case.where.record("extra/0.r1"),
        *case.chunks(1),
    }
    again = case.scrub()
    assert (again.completed, again.lacking, again.lost) == (0, 0, [])
    assert again.bytes > report.bytes
    for copy in (0, 2):
        case.memory.objects.pop(case.where.index(0, copy))
    assert index.check_restorable(case.where, 0).committed
    assert {name: bytes(data) for name, data in index.read_shard(case.where, 0)[1].items()} == TENSORS
    case.flip(case.chunks(1)[0])
    assert case.scrub().repaired == 3


def test_a_copy_that_a_late_holder_half_wrote_is_completed(tmp_path):
    """QR5, CP9: its good chunks are kept, a damaged one is not taken over."""
    case = Case(tmp_path, made=(0,), planned=1)
    case.memory.objects[case.where.record("INTENT")] = b'{"copies":2,"v":1}\n'
    first, second = case.chunks(0)
    case.memory.objects[first.replace("/c0/", "/c1/")] = b"torn"
    case.memory.objects[second.replace("/c0/", "/c1/")] = case.memory.objects[second]
    assert case.scrub().completed == 1
    assert [case.memory.objects[key] for key in case.chunks(1)] == [
        case.memory.objects[key] for key in case.chunks(0)
    ]


def test_a_late_holder_with_another_index_is_not_overruled(tmp_path):
    """QR5: what lies under the key of an index is never replaced by another one."""
    case = Case(tmp_path, made=(0,), planned=1)
    case.memory.objects[case.where.record("INTENT")] = b'{"copies":2,"v":1}\n'
    case.memory.objects[case.where.index(0, 1)] = b"another\n"
    report = case.scrub()
    assert (report.completed, report.lacking, report.lost) == (0, 1, [])
    assert report.refused.startswith("Exists: ")
    assert case.memory.objects[case.where.index(0, 1)] == b"another\n"


def test_a_store_that_refuses_to_be_mended_is_named_and_the_good_copy_counts(case):
    """PB4: read-only; degraded, not corrupt."""
    case.flip(case.chunks(0)[0])
    case.memory.refuses = True
    report = case.scrub()
    assert (report.lacking, report.lost, report.repaired) == (1, [], 0)
    assert report.refused == "NoRights: the store is mounted read-only"


def test_another_store_says_nothing_of_the_checkpoint(case):
    """CK7, PB4: an empty mount must not look like a lost checkpoint."""
    case.memory.objects.clear()
    with pytest.raises(StoreChanged):
        case.scrub(store_id=case.id)
    assert case.memory.objects == {}


def test_a_store_that_does_not_answer_says_nothing_of_the_checkpoint(case):
    """PB4."""
    case.memory.plan(faults=[None] * 6 + [Fault.LOST_REQUEST] * 7)
    with pytest.raises(Unreachable):
        case.scrub()


def test_a_checkpoint_that_is_being_deleted_is_left_alone(case):
    """GC4, GC6: a mended chunk would outlive its collection."""
    case.flip(case.chunks(0)[0])
    collection.collect(case.where)
    before = dict(case.memory.objects)
    with pytest.raises(index.NotRestorable, match="being deleted"):
        case.scrub()
    assert case.memory.objects == before


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_scrub_that_dies_at_any_call_is_repeated_and_leaves_all_whole(tmp_path, dies_after):
    """CP1, PB2, PB3: bad chunks, a lost index and a copy that was never made."""
    finished = False
    for call in range(200):
        case = Case(tmp_path, made=(0, 2), planned=3)
        case.flip(case.chunks(0)[0])
        del case.memory.objects[case.chunks(2)[1]]
        del case.memory.objects[case.where.index(0, 2)]
        case.memory.plan(die_at=call, dies_after=dies_after)
        try:
            case.scrub()
            finished = True
        except Died:
            case.memory.plan()
            case.scrub()
        case.memory.plan()
        assert {key: case.memory.objects[key] for key in case.before} == case.before
        report = case.scrub()
        assert (report.bad, report.lacking, report.lost) == ([], 0, [])
        if finished:
            break
    assert finished
    assert call > 20


def test_foreign_objects_beside_a_checkpoint_are_passed_over(case):
    """GC7."""
    for name in ("extra/notes.txt", "extra/9.r0", "c0/readme"):
        case.memory.objects[case.where.record(name)] = b"mine"
    case.memory.objects[case.where.record("extra/0.r7")] = b'{"v":1,"idx_sha256":"../../x"}'
    report = case.scrub()
    assert (report.bad, report.lost, report.lacking) == ([], [], 0)


def test_bytes_are_read_no_faster_than_the_budget_allows():
    """PB1: 50 MB/s by default."""
    now, pauses = [0.0], []

    def pause(seconds):
        pauses.append(seconds)
        now[0] += seconds

    throttle = scrub.Throttle(100.0, clock=lambda: now[0], pause=pause)
    for _ in range(4):
        throttle.take(50)
    assert pauses == [0.5, 0.5, 0.5]
    now[0] += 60
    throttle.take(50)
    throttle.take(50)
    assert pauses == [0.5] * 4  # what was not used before is not made up for


def test_a_scrub_rests_while_a_checkpoint_is_being_saved():
    """PB1: the save has the store for itself."""
    saving = [True, True, True, False]
    pauses = []
    throttle = scrub.Throttle(100.0, clock=lambda: 0.0, pause=pauses.append, is_busy=lambda: saving.pop(0))
    throttle.take(10)
    assert pauses == [1.0, 1.0, 1.0]


def test_a_directive_is_carried_out_and_answered_with_what_was_found(case):
    """PB1, KT3."""
    case.flip(case.chunks(0)[0])
    value = scrub.run(case.home, {"ckpt": CKPT, "storeId": case.id}, is_busy=lambda: False)
    assert (value["damaged"], value["repaired"], value["lost"]) == (1, 1, [])
    with pytest.raises(BadArguments):
        scrub.run(case.home, {"storeId": case.id}, is_busy=lambda: False)
