"""Ctrl-C, and `kill`, end a run in order: the cell that runs is undone, all programs end, and what was measured stays."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import uvloop

__all__ = ["finished"]


def finished(work: Coroutine[Any, Any, None]) -> bool:
    """Run to the end, or until SIGINT or SIGTERM; return whether it was the end.

    A signal cancels the work and waits for it, so that everything that it started has ended on return. It is handled
    by the event loop: an exception out of a signal handler would leave the loop with the work half done.
    """
    told = False

    async def watched() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            nonlocal told
            told = True
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        await work

    try:
        uvloop.run(watched())
    except asyncio.CancelledError:
        if not told:
            raise
    return not told
