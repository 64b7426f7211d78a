"""The store in a directory: what the system's errors mean, and what must not be followed or left behind."""

import ctypes
import errno
import mmap
import os

import pytest

from storecontract import StoreContract
from trainer_operator.agent.backends import BadAddress, Full, NoRights, Unreachable
from trainer_operator.agent.backends.file import FileStore


class TestFileStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return FileStore(str(tmp_path / "deep" / "store"), page=10)


@pytest.fixture
def store(tmp_path):
    return FileStore(str(tmp_path))


@pytest.mark.parametrize("root", ["relative", "", "file:///a", "/a/../b"])
def test_a_root_that_is_no_absolute_directory_is_refused(root):
    """TN10."""
    with pytest.raises(BadAddress, match="must be absolute"):
        FileStore(root)


def test_a_create_leaves_one_file_and_never_renames(store, tmp_path, monkeypatch):
    """DE1, BK: link, never rename."""
    monkeypatch.setattr(os, "rename", forbidden)
    monkeypatch.setattr(os, "replace", forbidden)
    store.create("deep/record", b"first")
    store.put("deep/PROBE", b"one")
    store.put("deep/PROBE", b"two")
    assert sorted(os.listdir(tmp_path / "deep")) == ["PROBE", "record"]


def forbidden(*_):
    raise AssertionError("rename overwrites silently")


def test_a_link_is_not_followed(store, tmp_path):
    """TN10."""
    (tmp_path / "secret").write_text("other")
    (tmp_path / "record").symlink_to(tmp_path / "secret")
    with pytest.raises(NoRights, match="is a link"):
        store.get("record", limit=100)


def test_a_link_to_a_folder_is_listed_as_a_name_and_not_entered(store, tmp_path):
    """TN10."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "link").symlink_to(tmp_path / "elsewhere")
    assert [entry.key for entry in store.list("mine/").entries] == ["mine/link"]


@pytest.mark.parametrize(
    ("number", "error", "sentence"),
    [
        (errno.ENOSPC, Full, "has no room for a/record"),
        (errno.EDQUOT, Full, "has no room for a/record"),
        (errno.EACCES, NoRights, "refuses a/record"),
        (errno.EROFS, NoRights, "refuses a/record"),
        (errno.EIO, Unreachable, "does not answer for a/record"),
        (errno.ESTALE, Unreachable, "does not answer for a/record"),
    ],
)
def test_an_error_of_the_system_is_one_sentence_and_leaves_nothing(
    store, tmp_path, monkeypatch, number, error, sentence
):
    """PB4: full, read-only, no rights, gone."""

    def fail(_descriptor, _data):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fail)
        with pytest.raises(error, match=sentence):
            store.create("a/record", b"data")
    assert os.listdir(tmp_path / "a") == []
    store.create("a/record", b"data")


def test_a_link_that_was_repeated_by_the_network_is_our_own(store, tmp_path, monkeypatch):
    """DE2: the first link had succeeded, and only its answer was lost."""
    link = os.link

    def twice(source, target):
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    store.create("record", b"mine")
    assert (tmp_path / "record").read_bytes() == b"mine"


def test_temporary_files_are_swept_and_folders_of_others_stay(store, tmp_path):
    """FC10, GC7."""
    store.create("t/c0/ab/chunk", b"")
    (tmp_path / "t" / "c0" / "ab" / ".tmp-half").write_text("")
    (tmp_path / "t" / "empty" / "deep").mkdir(parents=True)
    assert [entry.key for entry in store.list("").entries] == ["t/c0/ab/chunk"]
    store.sweep("t/")
    assert os.listdir(tmp_path / "t" / "c0" / "ab") == ["chunk"]
    assert os.listdir(tmp_path / "t") == ["c0"]


def test_what_is_large_leaves_the_page_cache_once_it_is_durable(store, tmp_path):
    """FZ3: a save must not push out what training reads."""
    small, large = b"s" * 4096, b"l" * 2**20
    store.create("small", small)
    store.create("large", large)
    probe = tmp_path / "probe"
    with probe.open("wb") as file:
        file.write(small)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if pages_in_cache(probe):
        pytest.skip("this file system lives in memory")
    assert pages_in_cache(tmp_path / "small") == 1
    assert pages_in_cache(tmp_path / "large") == 0
    assert store.get("large", limit=len(large)) == large


def pages_in_cache(path):
    """Ask the kernel, without reading: a read would fetch what it looks for."""
    size = path.stat().st_size
    libc, answer = ctypes.CDLL(None, use_errno=True), (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        code = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), answer)
        del first
    assert code == 0, os.strerror(ctypes.get_errno())
    return sum(byte & 1 for byte in answer)
