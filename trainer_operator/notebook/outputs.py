"""What became of code in a kernel: its outputs in order, and when it is done. Pure.

It is done once the kernel has replied and is idle: the reply and the outputs come by different channels, in any order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainer_operator.notebook.faults import AnswerMalformed, KernelLost
from trainer_operator.notebook.wire import Message


class OutputKind(StrEnum):
    """Where an output came from."""

    STDOUT = "stdout"
    STDERR = "stderr"
    RESULT = "result"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Output:
    """One piece of output, as plain text."""

    kind: OutputKind
    text: str


@dataclass(slots=True)
class Execution:
    """The run of one piece of code."""

    id: str
    replied: bool = False
    idle: bool = False

    @property
    def is_done(self) -> bool:
        """Whether nothing more comes."""
        return self.replied and self.idle

    def take(self, message: Message) -> Output | None:
        """Take a message, and return the output in it; those of other runs change nothing.

        Raises: KernelLost when the kernel says that it ends; AnswerMalformed.
        """
        if message.kind == "status" and message.content.get("execution_state") in {"dead", "restarting"}:
            raise KernelLost("the kernel ended while the code ran; its memory is gone")
        if message.parent_id != self.id:
            return None
        content = message.content
        match message.channel, message.kind:
            case "shell", "execute_reply":
                self.replied = True
                if content.get("status") == "aborted":
                    self.idle = True
                    return Output(OutputKind.ERROR, "the kernel did not run the code: it was aborted")
            case "iopub", "status":
                self.idle = self.idle or content.get("execution_state") == "idle"
            case "iopub", "stream":
                kind = OutputKind.STDERR if content.get("name") == "stderr" else OutputKind.STDOUT
                return Output(kind, _text(content, "text"))
            case "iopub", "execute_result" | "display_data":
                data = content.get("data")
                if not isinstance(data, dict):
                    raise AnswerMalformed("the kernel sent a result without data")
                return Output(OutputKind.RESULT, _text(data, "text/plain"))
            case "iopub", "error":
                lines = content.get("traceback") or [f"{content.get('ename')}: {content.get('evalue')}"]
                return Output(OutputKind.ERROR, "\n".join(map(str, lines)))
            case _:
                pass
        return None


def _text(content: Mapping[str, Any], key: str) -> str:
    text = content.get(key, "")
    if not isinstance(text, str):
        raise AnswerMalformed(f"the kernel sent an output whose {key} is no text")
    return text
