"""Run a command in a room where a real node can be started: `python -m ...realnode [--skip-to FILE] -- COMMAND`.

What is missing is said in one sentence. With `--skip-to`, which is for machines nobody chose, that is no failure, and
the sentence is written to the file, so that whoever asked can tell it from a success; what goes wrong later always is
a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer_operator.devcluster.errors import BuildFailed, ClusterFault
from trainer_operator.devcluster.filelock import AlreadyLocked, locked
from trainer_operator.devcluster.paths import state_root
from trainer_operator.devcluster.realnode import images, machine, programs, room


def main(arguments: Sequence[str]) -> int:
    """Prepare what is missing, run the command in a room, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer_operator.devcluster.realnode",
        description="Run a command in namespaces where a real kubelet with real containers can be started.",
    )
    parser.add_argument(
        "--skip-to",
        type=Path,
        metavar="FILE",
        help="where this machine cannot run a real node, write why to this file and end with 0",
    )
    parser.add_argument("--prepare-only", action="store_true", help="build what is missing and run nothing")
    parser.add_argument("command", nargs="*", help="the command, after --")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a build, too
    try:
        try:
            machine.prepare(state_root())
        except machine.Unsuitable as problem:
            return _not_run(str(problem), skip_to=options.skip_to)
        programs.ensure()
        images.ensure_base()
        return 0 if options.prepare_only else _run(options.command)
    except BuildFailed as problem:
        if machine.is_about_network(str(problem)):
            return _not_run(str(problem), skip_to=options.skip_to)
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except ClusterFault as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: run this again, it goes on where it was", file=sys.stderr)
        return 130


def _run(command: Sequence[str]) -> int:
    folder = state_root() / "real-node"
    try:
        with locked(folder.with_name("real-node.lock"), patience=5.0):
            shutil.rmtree(folder, ignore_errors=True)  # what a killed run left
            try:
                return room.run_in_room(list(command), folder, environ=os.environ)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except AlreadyLocked:
        raise ClusterFault("a real node is running already: wait for it to end") from None


def _not_run(reason: str, *, skip_to: Path | None) -> int:
    if skip_to is None:
        print(f"error: not run here: {reason}", file=sys.stderr)
        return 1
    print(f"skipped: {reason}", flush=True)
    skip_to.write_text(f"{reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
