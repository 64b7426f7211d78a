"""Store operations that the leader asks of an agent: it reaches the store, the operator does not (BK, DE)."""

from __future__ import annotations

import secrets
from typing import Any, Dict, Mapping

from trainer_operator.agent import census, collection, index, leftovers, store
from trainer_operator.agent.backends import Home, StoreError
from trainer_operator.agent.inventory import inventory
from trainer_operator.agent.purge import purge
from trainer_operator.agent.store import CheckpointDir, Decision
from trainer_operator.agent.timelines import open_timeline

OPERATIONS = ("decide", "collect", "verify", "purge", "inventory", "timeline")


class BadArguments(ValueError):
    """A directive lacks something or holds the wrong type."""


class OperationFailed(Exception):
    """The operation was refused; `value` goes back beside the error."""

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


def run(home: Home, args: Mapping[str, Any]) -> Dict[str, Any]:
    """Carry out one operation and return its value.

    Guarantees: repeatable; a decision that exists is returned, never changed (DE1); nothing is written to another
    store than `storeId` names (CK7).
    Raises: OperationFailed, BadArguments, StoreError.
    """
    operation = text(args, "op")
    if operation not in OPERATIONS:
        raise BadArguments("op is %r; known are %s" % (operation[:32], ", ".join(OPERATIONS)))
    expected = str(args.get("storeId") or "")
    if operation == "inventory":
        return inventory(home, after=str(args.get("after") or ""))
    if operation == "purge":
        if expected:
            store.identify(home, expected=expected)
        return purge(home)
    if operation == "timeline":
        store.identify(home, expected=expected)
        return {"number": _open_timeline(home, args)}
    where = CheckpointDir(home, text(args, "ckpt"))
    if operation == "decide":
        store_id = store.identify(home, expected=expected)
        return {**_decide(where, args), "storeId": store_id}
    if expected:
        store.identify(home, expected=expected)
    if operation == "collect":
        return _collect(where, at=whole(args, "at", default=0))
    checked, bad = index.verify(where)
    return {"ok": not bad, "bytes": checked, "bad": bad[:64]}


def _collect(where: CheckpointDir, *, at: int) -> Dict[str, Any]:
    """Collect one checkpoint; then clear what is so old that nobody asks for it, if the order says when it was given."""
    try:
        done = collection.collect(where, at=at)
    except store.NotDecided as error:
        raise OperationFailed("undecided", {"ckpt": where.ckpt}) from error
    value: Dict[str, Any] = {"deleted": done.objects}
    if at:
        try:
            value.update(leftovers.clear(where.home, done.known or census.take(where.home), at=at).value())
        except StoreError as error:  # the next collection tries again
            value["uncleared"] = error.told
    return value


def _decide(where: CheckpointDir, args: Mapping[str, Any]) -> Dict[str, Any]:
    outcome = text(args, "outcome")
    reason, nonce = str(args.get("reason", "")), str(args.get("nonce") or secrets.token_hex(8))
    step = whole(args, "step", default=store.step_of(where.ckpt))
    epoch = whole(args, "epoch", default=0)
    if outcome == store.ABORT:
        begun = whole(args, "begun", default=0)
        return _value(
            store.decide_abort(where, step=step, epoch=epoch, reason=reason, nonce=nonce, begun=begun)
        )
    if outcome != store.COMMIT:
        raise BadArguments("outcome is %r; known are commit and abort" % outcome[:32])
    try:
        decision = store.decide_commit(
            where,
            shards=whole(args, "shards"),
            copies=whole(args, "copies"),
            step=step,
            epoch=epoch,
            reason=reason,
            nonce=nonce,
            timeline=whole(args, "timeline", default=0),
        )
    except store.QuorumNotReached as error:
        raise OperationFailed("quorum", error.acks) from error
    return _value(decision)


def _open_timeline(home: Home, args: Mapping[str, Any]) -> int:
    return open_timeline(
        home,
        after=whole(args, "after"),
        parent=whole(args, "parent"),
        step=whole(args, "step"),
        reason=str(args.get("reason", ""))[:256],
        nonce=text(args, "nonce"),
    )


def _value(decision: Decision) -> Dict[str, Any]:
    return {
        "outcome": decision.outcome,
        "reason": decision.reason,
        "nonce": decision.nonce,
        "step": decision.step,
        "bytes": decision.bytes,
        "reused": decision.reused,
        "differing": list(decision.differing),
        "copies": {str(shard): sorted(copies) for shard, copies in decision.shards.items()},
        "digest": decision.digest,
    }


def text(args: Mapping[str, Any], name: str) -> str:
    """Return a text argument.

    Raises: BadArguments.
    """
    value = args.get(name)
    if not isinstance(value, str) or not value:
        raise BadArguments("%s must be a text, not %r" % (name, str(value)[:64]))
    return value


def whole(args: Mapping[str, Any], name: str, *, default: int = -1) -> int:
    """Return a whole number that is 0 or more.

    Raises: BadArguments.
    """
    value = args.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise BadArguments("%s must be a whole number, 0 or more, not %r" % (name, str(value)[:64]))
    return value
