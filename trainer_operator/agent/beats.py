"""Beats and replies: the JSON between agent and operator (TX, MG1). Pure; the limits are those of AA7."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Tuple

from trainer_operator.agent.settings import Settings
from trainer_operator.agent.state import View

VERSION = 1
MAX_BEAT_BYTES = 60 * 1024
MAX_REPLY_BYTES = 4 * 1024 * 1024
MAX_DIRECTIVES = 256
_MAX_TAIL = 2048
_MAX_VALUE = 4096


class MalformedReply(Exception):
    """The operator's answer is not a reply; it counts as no answer."""


@dataclass(frozen=True)
class Directive:
    """One instruction; idempotent by id."""

    id: str
    kind: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """One answer of the operator."""

    epoch: int = 0
    hb: float = 2.0
    directives: Tuple[Directive, ...] = ()
    decided: Mapping[str, str] = field(default_factory=dict)
    close: bool = False
    key: str = ""
    """What members of this epoch sign with when they ask each other for chunks."""


def build(
    settings: Settings,
    view: View,
    *,
    boot: str,
    have: List[int],
    hold: float,
    seen: Mapping[str, Any],
) -> Dict[str, Any]:
    """Build a beat from a view of the state and the counters that were seen.

    Guarantees: only finite numbers, bounded lists and texts, at most 60 KiB as JSON; acks and results that do not
    fit wait for the next beat.
    """
    identity = settings.identity
    ended = view.exit
    beat: Dict[str, Any] = {
        "v": VERSION,
        "trainer": identity.trainer,
        "tuid": identity.uid,
        "pod": identity.pod_uid,
        "podName": identity.pod_name,
        "role": identity.role,
        "idx": identity.index,
        "attempt": identity.attempt,
        "epoch": view.epoch,
        "psEpoch": view.ps_epoch,
        "boot": boot,
        "run": view.run,
        "seq": view.seq,
        "address": settings.pod_ip,
        "port": view.port,
        "listening": view.listening,
        "proc": view.proc,
        "pid": view.pid,
        **seen,
        "exit": None
        if ended is None
        else {
            "code": ended.code,
            "sig": ended.sig,
            "step": ended.step,
            "fingerprint": ended.fingerprint,
            "tail": shorten(ended.tail, _MAX_TAIL),
        },
        "prepared": view.prepared,
        "step": view.step,
        "steps": view.steps,
        "stepAgeMs": int(view.step_age * 1000),
        "phase": view.phase,
        "phaseAgeMs": int(view.phase_age * 1000),
        "phaseBudget": view.phase_budget,
        "dtMs": [round(value, 3) for value in view.dt_ms if math.isfinite(value)][-16:],
        "samples": view.samples,
        "dataEpoch": view.data_epoch,
        "metrics": {
            name[:64]: value for name, value in list(view.metrics.items())[:8] if math.isfinite(value)
        },
        "have": have[-64:],
        "acks": [],
        "results": [],
        "hold": hold,
        "softEpochs": view.soft_epochs,
    }
    room = MAX_BEAT_BYTES - len(encode(beat))
    acks = [{**ack.__dict__, "error": _text(ack.error)} for ack in view.acks]
    results = [
        {"id": result.id, "ok": result.ok, "value": _bounded(result.value), "error": _text(result.error)}
        for result in view.results
    ]
    for name, items in (("acks", acks), ("results", results)):
        for item in items:
            room -= len(encode(item)) + 1
            if room < 0:
                break
            beat[name].append(item)
    return beat


def encode(value: Any) -> bytes:
    """Encode as JSON without NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def parse_reply(raw: bytes) -> Reply:
    """Parse a reply; single directives that cannot be read are passed over.

    Raises: MalformedReply when the whole is not a reply.
    """
    if len(raw) > MAX_REPLY_BYTES:
        raise MalformedReply("the operator's reply has more than %d bytes" % MAX_REPLY_BYTES)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedReply("the operator's reply is not JSON") from error
    if not isinstance(body, dict):
        raise MalformedReply("the operator's reply is not a JSON object")
    hb = body.get("hb", 2.0)
    directives, decided, close = body.get("directives", []), body.get("decided", {}), body.get("close", False)
    if isinstance(hb, bool) or not isinstance(hb, (int, float)) or not math.isfinite(hb):
        raise MalformedReply("hb in the operator's reply is not a number")
    if not isinstance(directives, list) or not isinstance(decided, dict) or not isinstance(close, bool):
        raise MalformedReply("directives, decided or close in the operator's reply has the wrong type")
    epoch = body.get("epoch", 0)
    return Reply(
        epoch if isinstance(epoch, int) else 0,
        min(15.0, max(0.05, float(hb))),
        tuple(_directive(entry) for entry in directives[:MAX_DIRECTIVES] if _is_directive(entry)),
        {str(ckpt): str(outcome) for ckpt, outcome in decided.items()},
        close,
        str(body.get("key") or ""),
    )


def shorten(text: str, limit: int) -> str:
    """Keep the end of a text, at most `limit` bytes as UTF-8."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[-limit:].decode("utf-8", "ignore")


def _is_directive(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("id"), str)
        and 0 < len(entry["id"]) <= 512
        and isinstance(entry.get("kind"), str)
        and isinstance(entry.get("args", {}), dict)
    )


def _directive(entry: Mapping[str, Any]) -> Directive:
    return Directive(entry["id"], entry["kind"], entry.get("args", {}))


def _text(text: Any) -> Any:
    return text if text is None else shorten(str(text), 512)


def _bounded(value: Any) -> Any:
    """Drop a value that would crowd out everything else."""
    try:
        return value if len(encode(value)) <= _MAX_VALUE * 4 else None
    except (TypeError, ValueError):
        return None
