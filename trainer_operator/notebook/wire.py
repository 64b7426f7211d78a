"""Messages of a kernel as they travel by websocket, in both forms that gateways speak. Pure.

`v1.kernel.websocket.jupyter.org` is binary: the number of offsets, the offsets, each 8 bytes, little-endian; then the
channel, header, parent header, metadata, content and buffers, one after another. The older form is one JSON text; its
binary messages (with buffers) begin with offsets of 4 bytes, big-endian. Buffers are not used here.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from trainer_operator.notebook.faults import AnswerMalformed

V1 = "v1.kernel.websocket.jupyter.org"
MOST_PARTS = 64
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the Jupyter protocol; its contents are what a kernel sent, so of any shape."""

    channel: str
    header: Mapping[str, Any]
    content: Mapping[str, Any]
    parent: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return the type of the message."""
        return str(self.header.get("msg_type", ""))

    @property
    def parent_id(self) -> str:
        """Return the id of the message that it answers."""
        return str(self.parent.get("msg_id", ""))


def encode_v1(message: Message) -> bytes:
    """Write a message in the newer form."""
    parts = [
        message.channel.encode(),
        *map(orjson.dumps, (message.header, message.parent, message.metadata, message.content)),
    ]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    numbers = (len(offsets), *offsets)
    return b"".join([*(number.to_bytes(8, "little") for number in numbers), *parts])


def decode_v1(data: bytes) -> Message:
    """Read a message of the newer form.

    Raises: AnswerMalformed.
    """
    count = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not _PARTS + 2 <= count <= MOST_PARTS or len(data) < 8 * (count + 1):
        raise AnswerMalformed(f"the gateway sent {len(data)} bytes that are no message of {V1}")
    offsets = [int.from_bytes(data[8 * at : 8 * at + 8], "little") for at in range(1, count + 1)]
    if offsets != sorted(offsets) or offsets[0] != 8 * (count + 1) or offsets[-1] > len(data):
        raise AnswerMalformed(
            f"the gateway sent a message of {V1} whose offsets do not fit its {len(data)} bytes"
        )
    parts = [data[begin:end] for begin, end in itertools.pairwise(offsets)]
    try:
        channel = parts[0].decode()
    except UnicodeDecodeError:
        raise AnswerMalformed(f"the gateway sent a message of {V1} whose channel is no text") from None
    header, parent, metadata, content = (_object(part) for part in parts[1 : _PARTS + 1])
    return Message(channel, header, content, parent, metadata)


def encode_text(message: Message) -> str:
    """Write a message in the older form."""
    return orjson.dumps(
        {
            "channel": message.channel,
            "header": message.header,
            "parent_header": message.parent,
            "metadata": message.metadata,
            "content": message.content,
            "buffers": [],
        }
    ).decode()


def decode_text(data: str | bytes) -> Message:
    """Read a message of the older form, whose binary messages have a head of offsets.

    Raises: AnswerMalformed.
    """
    if isinstance(data, bytes):
        count = int.from_bytes(data[:4], "big")
        if len(data) < 4 or not 1 <= count <= MOST_PARTS or len(data) < 4 * (count + 1):
            raise AnswerMalformed(f"the gateway sent {len(data)} bytes that are no message")
        offsets = [int.from_bytes(data[4 * at : 4 * at + 4], "big") for at in range(1, count + 1)]
        data = data[offsets[0] : offsets[1] if count > 1 else len(data)]
    value = _object(data)
    parts = [value.get(name) or {} for name in ("header", "content", "parent_header", "metadata")]
    if not all(isinstance(part, dict) for part in parts):
        raise AnswerMalformed("the gateway sent a message whose header or content is no object")
    return Message(str(value.get("channel", "")), *parts)


def _object(data: str | bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise AnswerMalformed("the gateway sent a message with a part that is no JSON") from None
    if not isinstance(value, dict):
        raise AnswerMalformed("the gateway sent a message with a part that is no object")
    return value
