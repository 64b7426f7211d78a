"""The only place where tasks are made (P1).

An event loop holds its tasks weakly and forgets their failures (PY5). Here a task always belongs to a scope, the
scope ends no earlier than its tasks, and a task that fails takes its siblings and its scope with it.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, cast

__all__ = ["TaskBag", "TaskScope", "cancel_and_wait", "run_all"]

T = TypeVar("T")


class TaskScope:
    """A block that owns tasks: leaving it waits for them, a failure in one cancels the others.

    Guarantees: no task outlives the block, and no failure is lost.
    Cancellation: cancelling the owner cancels every task and waits for it.
    Raises: ExceptionGroup of the failures when the block is left.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._group.__aexit__(kind, error, trace)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a named task inside the scope."""
        task = self._group.create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel every task of the scope; leaving the block still waits for them and raises nothing for it."""
        for task in tuple(self._tasks):
            task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)


class TaskBag:
    """Tasks of an object that is started and stopped rather than entered: short ones, each on its own.

    A failure is told to the event loop's exception handler and takes nothing else with it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a named task that lives until it ends or the bag is closed."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel every task and return when all have ended."""
        await cancel_and_wait(*self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            context = {"message": f"task {task.get_name()} failed", "exception": failure, "task": task}
            task.get_loop().call_exception_handler(context)


async def run_all(*coros: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines side by side and return their results in order.

    Raises: ExceptionGroup when one fails; the others are cancelled first.
    """
    async with TaskScope() as scope:
        tasks = [scope.spawn(coro, name=f"run_all[{number}]") for number, coro in enumerate(coros)]
    return [task.result() for task in tasks]


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and return when all of them have ended.

    Guarantees: no task is left running.
    Cancellation: passed on after the tasks have ended.
    Raises: the first failure, in order of the tasks, that is no cancel.
    """
    for task in tasks:
        task.cancel()
    pending = {task for task in tasks if not task.done()}
    interrupted: asyncio.CancelledError | None = None
    while pending:
        try:
            _, pending = await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            interrupted = error
            pending = {task for task in pending if not task.done()}
    if interrupted is not None:
        raise interrupted
    for task in tasks:
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise cast("Exception", failure)
