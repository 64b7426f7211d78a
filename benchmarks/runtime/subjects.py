"""One run of one caching client against a pod server: the step that most benchmarks repeat."""

from __future__ import annotations

from typing import Any

from benchmarks.child import Failed, run, serving
from benchmarks.runtime import clientgo, podserver, reader

__all__ = ["DICT", "MODELS", "STRUCT", "follow", "try_follow"]

STRUCT = reader.KINDS["struct"]
DICT = reader.KINDS["dict"]
MODELS = reader.KINDS["kubernetes-asyncio"]

_KIND_OF = {subject: kind for kind, subject in reader.KINDS.items()}


def follow(
    subject: str, *, pods: int, events: int = 0, rate: int = 0, traced: bool = False, pages: bool = False
) -> dict[str, Any]:
    """Serve pods, let the subject cache and follow them, and return its figures.

    Raises: Failed when the subject gave none.
    """
    with serving(podserver.command(pods=pods, events=events, rate=rate, pages=pages)) as server:
        if subject in _KIND_OF:
            return run(reader.command(_KIND_OF[subject], server, pods=pods, events=events, traced=traced))
        return clientgo.measure(server, pods=pods, events=events, strip=subject == clientgo.STRIPPED)


def try_follow(
    subject: str, *, pods: int, events: int = 0, rate: int = 0, traced: bool = False, pages: bool = False
) -> dict[str, Any] | str:
    """Do the same, but return why when there are no figures."""
    try:
        return follow(subject, pods=pods, events=events, rate=rate, traced=traced, pages=pages)
    except Failed as failure:
        return str(failure)
