"""A store in a directory: a claim that members mount, or a folder of one machine (BK).

An object is written under a name of its own, synced, and then linked: `link` fails when the name exists, `rename`
would overwrite silently and is never used. So a crash between any two calls leaves an object that is whole or
absent, and two writers get one outcome (DE1). Names that begin with `.tmp-` are no objects and are never listed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import Iterator, List, Sequence, Tuple

from trainer_operator.agent.backends.errors import (
    BadAddress,
    BadKey,
    Exists,
    Full,
    NoRights,
    NotFound,
    StoreError,
    TooLarge,
    Unreachable,
)
from trainer_operator.agent.backends.protocol import (
    PAGE,
    Content,
    Entry,
    Page,
    check_key,
    check_keys,
    check_prefix,
)

TEMPORARY = ".tmp-"
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_LEAVES_CACHE = 1024 * 1024
"""Files of so many bytes are dropped from the page cache once they are synced. Saves would fill it with what nobody reads
soon, at the cost of the training's data in it; pages that are used again at once also cost the kernel less."""


class FileStore:
    """Objects as files below a directory.

    Assumptions: the file system's `link` is atomic, as it is on local disks and on NFS.
    """

    def __init__(self, root: str, *, page: int = PAGE) -> None:
        if not os.path.isabs(root) or ".." in root.split("/"):
            raise BadAddress("a directory for checkpoints must be absolute, not %r" % root[:80])
        self._root = os.path.normpath(root)
        self._page = page

    @property
    def address(self) -> str:
        """The directory."""
        return self._root

    def create(self, key: str, data: Content) -> None:
        """Create a file, durable on return.

        Raises: Exists, Full, NoRights, Unreachable.
        """
        path = self._path(key)
        with _translated(key):
            if not self._link(path, data):
                raise Exists("%s exists with another content" % key)

    def put(self, key: str, data: bytes) -> None:
        """Set or replace a file. Without `rename` the name is free for a moment."""
        path = self._path(key)
        with _translated(key):
            while not self._link(path, data):
                _unlink_if_there(path)

    def get(self, key: str, *, limit: int) -> bytes:
        """Read a regular file of at most `limit` bytes; links are not followed (TN10)."""
        data = self.get_range(key, start=0, length=limit + 1)
        if len(data) > limit:
            raise TooLarge("%s has more than %d bytes" % (key, limit))
        return data

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Read a part of a regular file."""
        path = self._path(key)
        with _translated(key):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    file.seek(start)
                    # Records are read with room for 4 MiB; a buffer of that size for each would hold 128 MB (KT7).
                    expected = min(length, max(0, os.fstat(descriptor).st_size - start) + 1)
                    data = file.read(expected)
                    return data + file.read(length - expected) if len(data) == expected else data
            finally:
                os.close(descriptor)

    def list(self, prefix: str, *, cursor: str = "", shallow: bool = False) -> Page:
        """List files in the order of their paths' parts."""
        folder = os.path.join(self._root, check_prefix(prefix))
        entries: List[Entry] = []
        folders: List[str] = []
        last = ""
        with _translated(prefix):
            for name, size in _walk(folder, tuple(cursor.split("/")) if cursor else (), shallow=shallow):
                if len(entries) + len(folders) == self._page:
                    return Page(tuple(entries), tuple(folders), last)
                last = name
                if size is None:
                    folders.append(prefix + name + "/")
                else:
                    entries.append(Entry(prefix + name, size))
        return Page(tuple(entries), tuple(folders), "")

    def delete_many(self, keys: Sequence[str]) -> int:
        """Delete files; what is gone already does not count."""
        deleted = 0
        for key in check_keys(keys):
            with _translated(key):
                deleted += _unlink_if_there(self._path(key))
        return deleted

    def sweep(self, prefix: str) -> None:
        """Remove the temporary files of writers that died, and empty folders."""
        top = os.path.join(self._root, check_prefix(prefix))
        with _translated(prefix):
            for folder, _, names in os.walk(top, topdown=False):
                for name in names:
                    if name.startswith(TEMPORARY):
                        _unlink_if_there(os.path.join(folder, name))
                with contextlib.suppress(OSError):  # something is there, or a late writer is at work
                    os.rmdir(folder)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, check_key(key))

    def _link(self, path: str, data: Content) -> bool:
        """Create a file with this content, or leave what is there; true when this call created it."""
        directory = os.path.dirname(path)
        make_directories(directory)
        temporary = os.path.join(
            directory, TEMPORARY + os.path.basename(path)[:32] + "-" + secrets.token_hex(8)
        )
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
                if len(data) >= _LEAVES_CACHE:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
            try:
                os.link(temporary, path)
                created = True
            except FileExistsError:
                # A network file system repeats a link whose answer was lost, and then finds its own.
                created = os.stat(temporary).st_nlink > 1
        finally:
            _unlink_if_there(temporary)
        _sync_directory(directory)
        return created


def make_directories(path: str) -> None:
    """Create a directory and its parents so that they survive a power loss."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_directories(parent)
    try:
        os.mkdir(path, 0o770)
    except FileExistsError:
        return
    _sync_directory(parent)


@contextlib.contextmanager
def _translated(key: str) -> Iterator[None]:
    """Say what the system's error means for the store."""
    try:
        yield
    except OSError as error:
        raise _meaning(error, key) from error


def _meaning(error: OSError, key: str) -> StoreError:
    number, text = error.errno, error.strerror or str(error)
    if number in _ABSENT:
        return NotFound("%s does not exist" % key)
    if number in _FORBIDDEN:
        return NoRights("the store refuses %s: %s; check the volume's mode and the pod's user" % (key, text))
    if number in _FULL:
        return Full("the store has no room for %s: %s; free space or give it a larger volume" % (key, text))
    if number == errno.ELOOP:
        return NoRights("%s is a link, and links are not followed" % key)
    if number == errno.ENAMETOOLONG:
        return BadKey("key %r is too long for the file system" % key[:80])
    return Unreachable("the store does not answer for %s: %s" % (key, text))


def _walk(folder: str, after: Tuple[str, ...], *, shallow: bool) -> Iterator[Tuple[str, "int | None"]]:
    """Yield relative paths with sizes, those of folders without, that come after the parts of a cursor."""
    for name in _names(folder):
        if after and name < after[0]:
            continue
        path = os.path.join(folder, name)
        deeper = after[1:] if after and name == after[0] else ()
        try:
            status = os.lstat(path)
        except FileNotFoundError:  # deleted meanwhile
            continue
        if not os.path.isdir(path) or os.path.islink(path):
            if not (after and name == after[0]):
                yield name, status.st_size
        elif shallow:
            if not (after and name == after[0]):
                yield name, None
        else:
            for below, size in _walk(path, deeper, shallow=False):
                yield name + "/" + below, size


def _names(folder: str) -> List[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith(TEMPORARY))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sync_directory(path: str) -> None:
    """Make the names in a directory durable; stores that cannot do this for directories are left alone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # some network file systems sync names themselves
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: Content) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _unlink_if_there(path: str) -> int:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return 0
    return 1
