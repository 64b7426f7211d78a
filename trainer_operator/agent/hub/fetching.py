"""Brings the files of a commit: in parts that go on where a connection broke, and checked against their hashes (HF3).

absent, or wrong ──fetch──▶ part ──hash right──▶ in its place
                     ▲        └──wrong: deleted, once more──▶ wrong again: HashMismatch
                     └── the connection broke: go on at its end
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Optional, Sequence, Tuple
from urllib.parse import quote

from trainer_operator.agent.hub.client import Answer, Hub, content_range
from trainer_operator.agent.hub.errors import HashMismatch, HubUnreachable, Passing
from trainer_operator.agent.hub.files import Folder
from trainer_operator.agent.hub.listing import RepoFile
from trainer_operator.agent.hub.patience import Patience
from trainer_operator.agent.parallel import each

_BLOCK = 1 << 20
_TRIES = 2


@dataclass(frozen=True)
class Fetched:
    """What it took."""

    files: int
    bytes: int
    reused: int
    """Files that were there already, and right."""


class Fetcher:
    """Brings files of one commit of one repository."""

    def __init__(
        self,
        hub: Hub,
        folder: Folder,
        *,
        repo: str,
        commit: str,
        patience: Callable[[], Patience],
        say: Callable[[str], object],
    ) -> None:
        self._hub, self._folder = hub, folder
        self._repo, self._commit = repo, commit
        self._patience, self._say = patience, say

    def fetch(self, files: Sequence[RepoFile]) -> Fetched:
        """Bring all files.

        Guarantees: what lies in its place has the right hash, also what was there before.
        Raises: HubError.
        """
        with self._folder.alone(self._say):
            reused = each(self._one, files)
        return Fetched(len(files), sum(file.size for file in files), sum(reused))

    def _one(self, file: RepoFile) -> bool:
        """Bring one file; true when it was there."""
        target = self._folder.target(file)
        try:
            fault = self._folder.fault(file, target)
        except OSError:
            fault = "is not there"
        else:
            if not fault:
                self._say("%s is there, with the right hash" % file.path)
                return True
            self._say("%s %s; it is deleted and fetched anew" % (file.path, fault))
            with self._folder.writing(file):
                os.unlink(target)
        for _ in range(_TRIES):
            self._say("%s is fetched: %d bytes" % (file.path, file.size))
            fault = self._try(file)
            if not fault:
                self._folder.keep(file)
                return False
            self._say("%s %s; it is deleted" % (file.path, fault))
            with self._folder.writing(file):
                os.unlink(self._folder.part(file))
        raise HashMismatch(
            "%s of %s at commit %s %s; it was fetched twice"
            % (file.path, self._repo, self._commit[:12], fault)
        )

    def _try(self, file: RepoFile) -> str:
        """Bring the part to its end; return what is wrong with it."""
        path, patience, most = self._folder.part(file), self._patience(), 0
        with self._folder.writing(file):
            open(path, "ab").close()
        while True:
            have = os.path.getsize(path)
            if have >= file.size:
                with self._folder.writing(file):
                    return self._folder.fault(file, path)
            if have > most:
                patience.progressed()  # a hub that always begins anew gets no further, so its bytes do not count
                most = have
            try:
                fault = self._go_on(file, path, have)
                if fault:
                    return fault
            except Passing as error:
                if os.path.getsize(path) > most:
                    patience.progressed()
                self._say("%s: %s; it goes on" % (file.path, error))
                patience.wait(error)

    def _go_on(self, file: RepoFile, path: str, have: int) -> str:
        """Fetch what is missing, once; return what the hub says that can't be right.

        Raises: HubError; Passing when there is more to fetch.
        """
        place = "/%s/resolve/%s/%s" % (self._repo, self._commit, quote(file.path))
        ranged = {"Range": "bytes=%d-" % have} if have else {}
        with self._hub.get(place, headers=ranged) as answer:
            if answer.status == 416:
                return "ends at %d bytes, expected %d" % (have, file.size)
            problem = self._hub.problem(answer, repo=self._repo, what=file.path)
            if problem is not None:
                raise problem
            start, total = _extent(answer)
            if total is not None and total != file.size:
                return "has %d bytes, expected %d" % (total, file.size)
            if start not in (0, have):
                raise HubUnreachable("%s sent another part than it was asked for" % self._hub.host)
            with self._folder.writing(file), open(path, "rb+") as part:
                part.truncate(start)
                part.seek(start)
                while start <= file.size:
                    block = answer.read(_BLOCK)
                    if not block:
                        break
                    part.write(block)
                    start += len(block)
        if start < file.size:
            raise HubUnreachable("the connection was cut after %d of %d bytes" % (start, file.size))
        return ""


def _extent(answer: Answer) -> Tuple[int, Optional[int]]:
    """Return where the body begins and how long the whole file is."""
    if answer.status == 206:
        return content_range(answer.header("Content-Range"))
    length = answer.header("Content-Length")
    return 0, int(length) if length.isdigit() else None
