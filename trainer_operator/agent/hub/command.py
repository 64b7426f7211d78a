"""`weights pin` and `weights fetch`: what the init containers of a member with weights run (HF1, HF4).

`pin` asks which commit a revision is, and tells the operator by the container's termination message; the operator
keeps it in status, and all other members get the commit. `fetch` brings the files of a commit. Neither has an
environment: what they need are arguments, and the token is read from the mounted Secret (PS4).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from typing import Callable, List, Sequence, Tuple

from trainer_operator.agent.hub.client import TIMEOUT, Hub
from trainer_operator.agent.hub.errors import BadAnswer, BadToken, CannotWrite, HubError, Passing
from trainer_operator.agent.hub.fetching import Fetcher
from trainer_operator.agent.hub.files import Folder
from trainer_operator.agent.hub.listing import UNKNOWN, RepoFile, choose, is_commit, resolve, tree
from trainer_operator.agent.hub.patience import Patience
from trainer_operator.agent.lastwords import redact

TOKEN_KEY = "HF_TOKEN"  # noqa: S105 - the name of a key
TERMINATION_LOG = "/dev/termination-log"
MAX_MESSAGE_BYTES = 2048
EX_DATAERR, EX_TEMPFAIL = 65, 75
_TOKEN = re.compile(r"^[\x21-\x7e]{1,4096}\Z")


def main(
    arguments: List[str],
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
    termination_log: str = TERMINATION_LOG,
    timeout: float = TIMEOUT,
) -> int:
    """Run `pin` or `fetch` and return the exit code."""
    options = _parser().parse_args(arguments)
    rng = random.Random()

    def patience() -> Patience:
        return Patience(clock=clock, pause=pause, rng=rng)

    token = ""
    try:
        token = read_token(options.token) if options.token else ""
        hub = Hub(options.hub, token=token, timeout=timeout)

        def say(text: str) -> None:
            print("[weights] " + redact(text, {TOKEN_KEY: token}), flush=True)

        if options.command == "pin":
            told = pin(hub, options.repo, options.revision, patience=patience(), file=options.pin_file)
        else:
            commit = options.commit or _pinned(options.pin_file)
            told = fetch(
                hub,
                options.repo,
                commit,
                folder=options.folder,
                wanted=options.files,
                patience=patience,
                say=say,
            )
        say(told)
        code = 0
    except HubError as error:
        told, code = error.told, EX_TEMPFAIL if isinstance(error, Passing) else EX_DATAERR
        sys.stderr.write("[weights] %s\n" % redact(told, {TOKEN_KEY: token}))
    if code or options.command == "pin":
        _tell(redact(told, {TOKEN_KEY: token}), termination_log)
    return code


def pin(hub: Hub, repo: str, revision: str, *, patience: Patience, file: str) -> str:
    """Resolve a revision, leave the commit for `fetch` in the same pod, and return what the operator is told.

    Raises: HubError.
    """
    commit = patience.call(lambda: resolve(hub, repo, revision))
    try:
        with open(file, "w", encoding="ascii") as target:
            target.write(commit)
    except OSError as error:
        raise CannotWrite("%s cannot be written: %s" % (file, error.strerror or error)) from error
    return "%s %s %s" % (repo, revision, commit)


def fetch(
    hub: Hub,
    repo: str,
    commit: str,
    *,
    folder: str,
    wanted: Sequence[Tuple[str, str]],
    patience: Callable[[], Patience],
    say: Callable[[str], object],
) -> str:
    """Bring the files of a commit, and return a sentence about it.

    Raises: HubError.
    """
    if _all_there(Folder(folder), wanted):
        return (
            "all %d files are there and have the SHA-256 that the Trainer names; the hub was not asked"
            % len(wanted)
        )
    found = patience().call(lambda: tree(hub, repo, commit))
    files = choose(found, wanted, repo=repo, commit=commit)
    fetcher = Fetcher(hub, Folder(folder), repo=repo, commit=commit, patience=patience, say=say)
    done = fetcher.fetch(files)
    return (
        "%d files of %s at commit %s are there and have the right hashes: %d bytes, %d files were there before"
        % (
            done.files,
            repo,
            commit[:12],
            done.bytes,
            done.reused,
        )
    )


def read_token(folder: str) -> str:
    """Read the token as it is now.

    Raises: BadToken; the message never has a part of it.
    """
    try:
        with open(os.path.join(folder, TOKEN_KEY), encoding="ascii") as file:
            token = file.read(8192).strip()
    except FileNotFoundError as error:
        raise BadToken(
            "the Secret of weights.huggingFace.credentialsSecret is not there, or has no key %s" % TOKEN_KEY
        ) from error
    except (OSError, ValueError) as error:
        raise BadToken("%s of the Secret cannot be read as text" % TOKEN_KEY) from error
    if not _TOKEN.match(token):
        raise BadToken("%s of the Secret is empty, or has blanks or line breaks inside" % TOKEN_KEY)
    return token


def _all_there(folder: Folder, wanted: Sequence[Tuple[str, str]]) -> bool:
    """Whether a volume that outlives pods has all that is wanted, by hashes that the Trainer itself names."""
    files = [RepoFile(path, UNKNOWN, sha256=sha256) for path, sha256 in wanted]
    if not files or not all(file.sha256 and os.path.isfile(folder.target(file)) for file in files):
        return False
    return not any(folder.fault(file, folder.target(file)) for file in files)


def _pinned(file: str) -> str:
    try:
        with open(file, encoding="ascii") as source:
            commit = source.read(64).strip()
    except (OSError, ValueError):
        commit = ""
    if not is_commit(commit):
        raise BadAnswer("%s names no commit; the container before this one writes it" % file)
    return commit


def _tell(text: str, termination_log: str) -> None:
    try:
        with open(termination_log, "w", encoding="utf-8") as log:
            log.write(text.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore"))
    except OSError as error:
        sys.stderr.write("[weights] %s cannot be written: %s\n" % (termination_log, error))


def _wanted(text: str) -> Tuple[str, str]:
    sha256, _, path = text.partition(":")
    return path, sha256


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer_operator.agent weights", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    pinning = commands.add_parser("pin", allow_abbrev=False)
    fetching = commands.add_parser("fetch", allow_abbrev=False)
    for each in (pinning, fetching):
        each.add_argument("--hub", required=True)
        each.add_argument("--repo", required=True)
        each.add_argument("--token", default="", help="folder of the mounted Secret")
        each.add_argument("--pin-file", default="")
    pinning.add_argument("--revision", required=True)
    fetching.add_argument("--commit", default="")
    fetching.add_argument("--folder", required=True)
    fetching.add_argument("files", nargs="*", type=_wanted, metavar="[SHA256]:PATH")
    return parser
