"""What every store has to do, whatever it is made of: one class of tests, which each store's test file inherits."""

import random
import threading

import pytest

from trainer_operator.agent.backends import (
    BadKey,
    Exists,
    NotFound,
    RetryingStore,
    TooLarge,
    every_entry,
    every_folder,
)


class StoreContract:
    """Tests of a fixture `store`, which is empty at the start of each and lists 10 names at a time."""

    def test_a_created_object_is_read_whole_and_in_parts(self, store):
        """BK."""
        store.create("a/b/record", b"0123456789")
        assert store.get("a/b/record", limit=10) == b"0123456789"
        assert store.get_range("a/b/record", start=3, length=4) == b"3456"
        assert store.get_range("a/b/record", start=8, length=100) == b"89"
        assert store.get_range("a/b/record", start=10, length=5) == b""
        assert store.get_range("a/b/record", start=0, length=0) == b""

    def test_a_view_is_written_before_its_memory_is_used_again(self, store):
        """FZ3, IV3: pieces of a copy lie in memory that the next ones get."""
        memory = bytearray(b"0123456789")
        with memoryview(memory)[2:6] as view:
            store.create("view", view)
            patient(store).create("view", view)
        memory[:] = b"x" * 10
        assert store.get("view", limit=10) == b"2345"

    def test_an_empty_object_is_an_object(self, store):
        """BK."""
        store.create("empty", b"")
        assert store.get("empty", limit=0) == b""
        with pytest.raises(Exists):
            store.create("empty", b"")

    def test_a_second_create_fails_and_changes_nothing(self, store):
        """DE1."""
        store.create("a/record", b"first")
        with pytest.raises(Exists):
            store.create("a/record", b"second")
        assert store.get("a/record", limit=100) == b"first"
        assert [entry.key for entry in every_entry(store, "a/")] == ["a/record"]

    def test_of_many_creates_at_once_exactly_one_succeeds(self, store):
        """DE1, FC09."""
        barrier, won = threading.Barrier(8), []

        def create(number):
            barrier.wait(60)
            try:
                patient(store).create("one/key", b"writer %d" % number)
            except Exists:
                return
            won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.get("one/key", limit=100) == b"writer %d" % won[0]

    def test_a_put_replaces(self, store):
        """PB: the last scrub's result is the only record that changes."""
        store.put("PROBE", b"one")
        store.put("PROBE", b"two")
        assert store.get("PROBE", limit=3) == b"two"

    def test_what_is_absent_is_not_found(self, store):
        """PB4."""
        store.create("a/b", b"x")
        for key in ("nothing", "a/nothing", "a", "a/b/c"):
            with pytest.raises(NotFound):
                store.get(key, limit=10)
            with pytest.raises(NotFound):
                store.get_range(key, start=0, length=1)

    def test_more_bytes_than_asked_for_are_refused(self, store):
        """CK5: a gigantic record costs its reader nothing."""
        store.create("large", b"x" * 100_000)
        with pytest.raises(TooLarge):
            store.get("large", limit=99_999)
        assert len(store.get("large", limit=100_000)) == 100_000

    def test_a_listing_tells_every_key_once_with_its_size(self, store):
        """PB1."""
        keys = {f"t/{folder}/{number}": number for folder in ("a", "a-b", "b") for number in range(3)}
        for key, size in keys.items():
            store.create(key, b"x" * size)
        store.create("other/key", b"")
        assert {entry.key: entry.size for entry in every_entry(store, "t/")} == keys
        assert [entry.key for entry in every_entry(store, "t/a/")] == ["t/a/0", "t/a/1", "t/a/2"]
        assert list(every_entry(store, "absent/")) == []
        assert len(list(every_entry(store, ""))) == 10

    def test_a_shallow_listing_tells_folders_once(self, store):
        """RS1: ids are listed without what lies below them."""
        for key in ("t/a/1", "t/a/2", "t/b/1", "t/file"):
            store.create(key, b"")
        page = store.list("t/", shallow=True)
        assert set(page.folders) == {"t/a/", "t/b/"}
        assert [entry.key for entry in page.entries] == ["t/file"]
        assert sorted(every_folder(store, "t/")) == ["a", "b"]

    def test_a_listing_of_several_pages_is_whole(self, store):
        """KT7."""
        keys = {f"many/{number % 4}/{number:04}" for number in range(33)}
        for key in keys:
            store.create(key, b"")
        assert store.list("many/").cursor
        found = [entry.key for entry in every_entry(store, "many/")]
        assert len(found) == len(keys)
        assert set(found) == keys
        assert store.delete_many(sorted(keys)) == len(keys)
        assert list(every_entry(store, "many/")) == []

    def test_deleting_what_is_absent_is_no_error(self, store):
        """GC6: a collection is repeated from any point."""
        store.create("a", b"")
        store.create("b", b"")
        store.delete_many(["a", "nothing"])
        store.delete_many([])
        store.sweep("")
        assert [entry.key for entry in every_entry(store, "")] == ["b"]
        store.create("a", b"again")

    @pytest.mark.parametrize(
        "key", ["", "/etc/passwd", "../a", "a/../../b", "a//b", "a/", ".", "a\nb", "a\\b", "ä", "x" * 901]
    )
    def test_a_key_that_could_leave_the_store_is_refused(self, store, key):
        """TN10."""
        for call in (
            lambda: store.create(key, b""),
            lambda: store.put(key, b""),
            lambda: store.get(key, limit=1),
            lambda: store.get_range(key, start=0, length=1),
            lambda: store.delete_many([key]),
        ):
            with pytest.raises(BadKey):
                call()
        if key:
            with pytest.raises(BadKey):
                store.list(key + "/../")

    def test_a_patient_create_of_the_same_content_is_repeatable(self, store):
        """DE2: our own earlier attempt is our success; another's content is not."""
        ours = patient(store)
        ours.create("record", b"mine")
        ours.create("record", b"mine")
        for other in (b"other", b"longer than mine", b""):
            with pytest.raises(Exists):
                ours.create("record", other)


def patient(store, *, clock=lambda: 0.0, pause=lambda _: None):
    """Wrap a store as the layout uses it, without the pauses."""
    return RetryingStore(store, clock=clock, pause=pause, rng=random.Random(7))
