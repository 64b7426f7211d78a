"""What a repository holds: the commit of a revision, and each file's size and hashes at that commit (HF1, HF3).

What the hub says is not trusted to be well-formed: paths stay below the folder, sizes are numbers, and everything is
bounded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote, urlsplit

from trainer_operator.agent.hub.client import Hub
from trainer_operator.agent.hub.errors import BadAnswer, FileNotFound, HashMismatch, HubUnreachable

SAFE_SUFFIXES = (".json", ".safetensors", ".model", ".txt", ".gguf")
"""Files that no framework executes when it loads them (HF2, UC2)."""
OWN = ".trainer-weights"
"""Folder beside the files that is ours, so that no file may be called so."""
UNKNOWN = -1
"""Size of a file of which only the hash was given."""
MAX_FILES = 100_000
MAX_PAGE_BYTES = 16 << 20
_COMMIT = re.compile(r"^[0-9a-f]{40}\Z")
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="next"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_TOLD = 8


@dataclass(frozen=True)
class RepoFile:
    """One file of a commit, and what it must be."""

    path: str
    size: int
    sha256: str = ""
    """Known of large files, or from the Trainer."""
    blob: str = ""
    """Git's own hash, which small files have instead."""


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit already."""
    return _COMMIT.match(revision) is not None


def resolve(hub: Hub, repo: str, revision: str) -> str:
    """Return the commit that a branch or tag points to now.

    Raises: HubError.
    """
    path = "/api/models/%s/revision/%s" % (repo, quote(revision, safe=""))
    answer, _ = _json(hub, path, repo=repo, what=revision)
    commit = answer.get("sha") if isinstance(answer, dict) else None
    if not isinstance(commit, str) or not is_commit(commit):
        raise BadAnswer("%s names no commit for revision %s of %s" % (hub.host, revision, repo))
    return commit


def tree(hub: Hub, repo: str, commit: str) -> Dict[str, RepoFile]:
    """Return the files of a commit by path.

    Raises: HubError.
    """
    path = "/api/models/%s/tree/%s" % (repo, commit)
    found: Dict[str, RepoFile] = {}
    query = "recursive=true"
    while len(found) <= MAX_FILES:
        entries, following = _json(hub, "%s?%s" % (path, query), repo=repo, what=commit)
        if not isinstance(entries, list):
            raise BadAnswer("%s lists the files of %s as something else than a list" % (hub.host, repo))
        for entry in entries:
            file = file_of(entry)
            if file is not None:
                found[file.path] = file
        if not following:
            return found
        if not entries:
            break
        query = following
    raise BadAnswer("%s does not end to list the files of %s: %d" % (hub.host, repo, len(found)))


def choose(
    found: Mapping[str, RepoFile], wanted: Sequence[Tuple[str, str]], *, repo: str, commit: str
) -> List[RepoFile]:
    """Return the files to fetch: those that are wanted as (path, SHA-256 or nothing), else all that are safe to load.

    Raises: FileNotFound; HashMismatch when hub and Trainer already disagree; BadAnswer for a file without any hash.
    """
    place = "%s at commit %s" % (repo, commit[:12])
    if not wanted:
        chosen = [file for file in found.values() if file.path.endswith(SAFE_SUFFIXES)]
        if not chosen:
            raise FileNotFound(
                "%s has no file that is safe to load (%s); name the others in weights.huggingFace.files"
                % (place, " ".join("*" + suffix for suffix in SAFE_SUFFIXES))
            )
    else:
        chosen = [_expected(found, path, sha256, place=place) for path, sha256 in wanted]
    for file in chosen:
        if not file.sha256 and not file.blob:
            raise BadAnswer(
                "the hub gives no hash for %s of %s; give its sha256 in weights.huggingFace.files"
                % (file.path, place)
            )
    return sorted(chosen, key=lambda file: file.path)


def _expected(found: Mapping[str, RepoFile], path: str, sha256: str, *, place: str) -> RepoFile:
    file = found.get(path)
    if file is None:
        some = ", ".join(sorted(found)[:_TOLD]) or "none"
        more = " and %d more" % (len(found) - _TOLD) if len(found) > _TOLD else ""
        raise FileNotFound("%s has no file %s; its files are %s%s" % (place, path, some, more))
    if sha256 and file.sha256 and sha256 != file.sha256:
        raise HashMismatch("%s of %s has SHA-256 %s, expected %s" % (path, place, file.sha256, sha256))
    return RepoFile(file.path, file.size, sha256 or file.sha256, file.blob)


def file_of(entry: Any) -> Optional[RepoFile]:
    """Return a file of the listing; None for folders, and for names that could leave the folder."""
    if not isinstance(entry, dict) or entry.get("type") != "file":
        return None
    path, size, large = entry.get("path"), entry.get("size"), entry.get("lfs")
    if not isinstance(path, str) or not _stays_inside(path):
        return None
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        return None
    if isinstance(large, dict):  # the blob is only the pointer to it then
        return RepoFile(path, size, sha256=_match(_SHA256, large.get("oid")))
    return RepoFile(path, size, blob=_match(_COMMIT, entry.get("oid")))


def _stays_inside(path: str) -> bool:
    parts = path.split("/")
    return (
        len(path) <= 1024
        and not _CONTROL.search(path)
        and not any(part in ("", ".", "..") for part in parts)
        and parts[0] != OWN
    )


def _match(pattern: "re.Pattern[str]", text: Any) -> str:
    return text if isinstance(text, str) and pattern.match(text) else ""


def _json(hub: Hub, path: str, *, repo: str, what: str) -> Tuple[Any, str]:
    """Return an answer of the API and the query of the page that follows it; empty after the last one."""
    with hub.get(path) as answer:
        problem = hub.problem(answer, repo=repo, what=what)
        if problem is not None:
            raise problem
        body = bytearray()
        while len(body) <= MAX_PAGE_BYTES:
            part = answer.read(1 << 16)
            if not part:
                break
            body.extend(part)
        length = answer.header("Content-Length")
        link = _NEXT.search(answer.header("Link"))
    if len(body) > MAX_PAGE_BYTES:
        raise BadAnswer("%s answered with more than %d bytes" % (hub.host, MAX_PAGE_BYTES))
    if length.isdigit() and len(body) < int(length):
        raise HubUnreachable("the connection to %s was cut in the middle of an answer" % hub.host)
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer("%s answered with something that is no JSON" % hub.host) from error
    return parsed, urlsplit(link.group(1)).query if link is not None else ""
