"""An event loop whose time jumps to the next timer as soon as nothing else can happen.

A test that waits for an hour of backoff ends at once, and two runs take the same steps: timers fire in order of
their deadline, never early and never late. Combine it with `runtime.clock.LoopClock`.

Sockets and threads work, but they do not hold time still: when neither a callback nor a socket is ready, time moves
on, even if a thread is still busy. Use simulated time for code without threads, and for sockets only where both ends
live in the loop.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from runtime.errors import RuntimeFault

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["SimulatedLoop", "SimulationStalled", "TasksLeaked", "run_simulated", "simulated"]

T = TypeVar("T")
P = ParamSpec("P")

OUTSIDE_WAIT = 5.0
"""Real seconds to wait for a socket or a thread when no timer is left, before the simulation counts as stalled."""


class SimulationStalled(RuntimeFault):
    """Every task waits for something that can no longer happen."""


class TasksLeaked(RuntimeFault):
    """The main coroutine ended while tasks it had started were still running."""


class _JumpingSelector(selectors.BaseSelector):
    """A selector that passes the wait on to the simulated time instead of sleeping."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._real = selectors.DefaultSelector()
        self._jump = jump

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is not None:
            self._jump(timeout)
            return []
        ready = self._real.select(OUTSIDE_WAIT)
        if not ready:
            raise SimulationStalled(
                "no timer is set, no socket is ready and nothing came from another thread: the tasks wait for ever"
            )
        return ready

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A stock event loop in simulated time, which starts at 1000.0.

    Raises: SimulationStalled out of `run_until_complete` when no task can ever go on.
    """

    def __init__(self) -> None:
        self._simulated = 1000.0
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        """Return the simulated time."""
        return self._simulated

    def stall(self, seconds: float) -> None:
        """Let time pass in one piece, as if a callback had blocked the loop for so long."""
        self._advance(seconds)

    def _advance(self, seconds: float) -> None:
        self._simulated += seconds


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in simulated time and return its result.

    Raises: TasksLeaked when it leaves tasks running; SimulationStalled when it can never end.
    """
    loop = SimulatedLoop()
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(main)
        leaked = sorted(task.get_name() for task in asyncio.all_tasks(loop))
        if leaked:
            raise TasksLeaked(f"still running after the end: {', '.join(leaked)}")
        return result
    finally:
        try:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def simulated(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a plain function of a coroutine function: it runs in simulated time (a decorator for tests)."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_simulated(test(*args, **kwargs))

    return run


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
