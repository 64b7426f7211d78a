"""Files in the folder of the weights: whole and right, or absent; a part of one lies beside them until it is (HF3).

    <mountPath>/model.safetensors
    <mountPath>/.trainer-weights/lock               one member at a time fetches into a volume that several share
    <mountPath>/.trainer-weights/<what>.<pod>.part  goes on where it ended, also in the next pod of the member

A part is named by what it shall become, and by the member, so that a volume without locks can be shared, too.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
from contextlib import ExitStack, contextmanager
from typing import Callable, Iterator

from trainer_operator.agent.hub.errors import CannotWrite
from trainer_operator.agent.hub.listing import OWN, UNKNOWN, RepoFile

_BLOCK = 1 << 20


class Folder:
    """One folder with weights."""

    def __init__(self, root: str) -> None:
        self.root = root

    def target(self, file: RepoFile) -> str:
        """Return where a file belongs."""
        return os.path.join(self.root, *file.path.split("/"))

    def part(self, file: RepoFile) -> str:
        """Return where it grows: named by content, so that parts of two revisions are never joined."""
        what = hashlib.sha256(("%s %s %s" % (file.path, file.sha256, file.blob)).encode()).hexdigest()[:32]
        return os.path.join(self.root, OWN, "%s.%s.part" % (what, socket.gethostname()[:64]))

    def fault(self, file: RepoFile, path: str) -> str:
        """Say in what the file at a path is not the right one, with what was found and expected; empty if it is.

        Raises: FileNotFoundError.
        """
        size = os.path.getsize(path)
        if file.size not in (size, UNKNOWN):
            return "has %d bytes, expected %d" % (size, file.size)
        sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 - git's name of a content
        with open(path, "rb") as source:
            for block in iter(lambda: source.read(_BLOCK), b""):
                sha256.update(block)
                if file.blob:
                    blob.update(block)
        if file.sha256 and sha256.hexdigest() != file.sha256:
            return "has SHA-256 %s, expected %s" % (sha256.hexdigest(), file.sha256)
        if file.blob and blob.hexdigest() != file.blob:
            return "has git hash %s, expected %s" % (blob.hexdigest(), file.blob)
        return ""

    def keep(self, file: RepoFile) -> None:
        """Put the part of a file, which is whole, in its place."""
        with self.writing(file):
            os.makedirs(os.path.dirname(self.target(file)), exist_ok=True)
            with open(self.part(file), "rb+") as whole:
                os.fsync(whole.fileno())
            os.chmod(self.part(file), 0o644)  # the training process may run as another user
            os.replace(self.part(file), self.target(file))

    @contextmanager
    def writing(self, file: RepoFile) -> Iterator[None]:
        """Tell what the volume refuses.

        Raises: CannotWrite.
        """
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise CannotWrite(
                    "the volume at %s has no room for %s of %d bytes" % (self.root, file.path, file.size)
                ) from error
            raise CannotWrite(
                "%s cannot be written to %s: %s" % (file.path, self.root, error.strerror or error)
            ) from error

    @contextmanager
    def alone(self, say: Callable[[str], object]) -> Iterator[None]:
        """Wait until no other member fetches into this volume; one that cannot be locked goes without."""
        with ExitStack() as held:
            try:
                os.makedirs(os.path.join(self.root, OWN), exist_ok=True)
                lock = held.enter_context(open(os.path.join(self.root, OWN, "lock"), "ab"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    say("another member fetches into %s; it is waited for" % self.root)
                    fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                say(
                    "%s cannot be locked, and is used all the same: %s" % (self.root, error.strerror or error)
                )
            yield
