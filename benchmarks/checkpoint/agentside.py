"""The agent's part of a save, in a process of its own as in a pod: takes what the SDK hands over, stores and commits it.

python -m benchmarks.checkpoint.agentside FOLDER STORE
stdin    {"ckpt", "step", "base"}                a checkpoint that the process shall take
stdout   {"accepted": ckpt}, then {"committed": ckpt, "bytes", "reused"}
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from trainer_operator.agent import store
from trainer_operator.agent.backends import HomeOpener
from trainer_operator.agent.conversation import Conversation
from trainer_operator.agent.saver import SaveOrder, Saver
from trainer_operator.agent.settings import read_settings
from trainer_operator.agent.state import CopyAck, Result, State

IDENTITY = {
    "TRAINER_NAME": "t",
    "TRAINER_NAMESPACE": "n",
    "TRAINER_UID": "uid",
    "TRAINER_ROLE": "worker",
    "TRAINER_POD_UID": "pod",
}


class Told(State):
    """A state whose news go to a callback at once, since no operator asks for them."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.acked = threading.Event()

    def add_result(self, result: Result) -> None:
        """Say that the process accepted."""
        super().add_result(result)
        _say(accepted=result.id)

    def add_ack(self, ack: CopyAck) -> None:
        """Wake whoever waits for the copy."""
        super().add_ack(ack)
        self.acked.set()


def main() -> None:
    """Serve until the input ends."""
    folder, address = sys.argv[1:3]
    open_home = HomeOpener(address, "")
    settings, state = read_settings(IDENTITY, folder=folder), Told()
    saver = Saver(settings, state, open_home=open_home, log=lambda line: print(line, file=sys.stderr))
    conversation = Conversation(settings, state, saver=saver, socket_path=folder + "/socket")
    _say(spool=settings.spool_folder)
    for line in sys.stdin:
        order = json.loads(line)
        ckpt, step = order["ckpt"], order["step"]
        state.acked.clear()
        conversation.ask_checkpoint(
            SaveOrder(ckpt, step, 0, (0,), 1, base=order["base"]), pause=False, directive=ckpt
        )
        state.acked.wait()
        (ack,) = (ack for ack in state.view().acks if ack.ckpt == ckpt)
        if not ack.ok:
            raise SystemExit(ack.error)
        where = store.CheckpointDir(open_home(), ckpt)
        made = store.decide_commit(where, shards=1, copies=1, step=step, epoch=1, reason="r", nonce="n")
        state.decided({ckpt: "commit"})
        _say(committed=ckpt, bytes=made.bytes, reused=made.reused)
    conversation.server.close()


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main()
