"""What is known of one container: waiting, running or terminated, and how it ended before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.clock import format_time, parse_time
from runtime.objects import JsonObject

COMPLETED, ERROR, OOM_KILLED, START_ERROR = "Completed", "Error", "OOMKilled", "StartError"
UNKNOWN = "ContainerStatusUnknown"
UNKNOWN_MESSAGE = "The container could not be located when the pod was terminated"
KILLED_EXIT_CODE = 137
START_ERROR_EXIT_CODE = 128


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not running, about to be or held back."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A process of this machine."""

    started_at: datetime
    container_id: str


@dataclass(frozen=True, slots=True)
class Terminated:
    """Ended, with the exit code as a container runtime reports it (128 + signal)."""

    exit_code: int
    reason: str
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    container_id: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One container of a pod."""

    name: str
    state: State
    last: Terminated | None = None
    """How the run before ended."""
    restarts: int = 0
    ready: bool = False
    started: bool = False
    """Past its startup probe."""

    @property
    def ever_ran(self) -> bool:
        """Tell whether a run was ever begun."""
        return self.last is not None or not isinstance(self.state, Waiting)


def exit_code_of(wait_status: int) -> int:
    """Return the exit code a container runtime reports for a wait status."""
    signal = wait_status & 0x7F
    return 128 + signal if signal else (wait_status >> 8) & 0xFF


def reason_of(exit_code: int, *, out_of_memory: bool = False) -> str:
    """Return why a container ended, in the words of container runtimes."""
    if out_of_memory:
        return OOM_KILLED
    return COMPLETED if exit_code == 0 else ERROR


def recorded(status: JsonObject, *, now: datetime) -> ContainerRecord:
    """Read a record back from a pod's status, as a node does that was restarted.

    A container that was running then is gone: its end was seen by nobody.
    """
    state = _state_of(status.get("state") or {})
    last = _state_of(status.get("lastState") or {})
    if isinstance(state, Running):
        state = Terminated(
            KILLED_EXIT_CODE,
            UNKNOWN,
            UNKNOWN_MESSAGE,
            started_at=state.started_at,
            finished_at=now,
            container_id=state.container_id,
        )
    return ContainerRecord(
        name=status.get("name") or "",
        state=state,
        last=last if isinstance(last, Terminated) else None,
        restarts=int(status.get("restartCount") or 0),
    )


def state_json(state: State | None) -> dict[str, Any]:
    """Return a state as the API writes it."""
    match state:
        case Waiting():
            body = {"reason": state.reason}
            if state.message:
                body["message"] = state.message
            return {"waiting": body}
        case Running():
            return {"running": {"startedAt": format_time(state.started_at)}}
        case Terminated():
            terminated: dict[str, Any] = {"exitCode": state.exit_code, "reason": state.reason}
            if state.message:
                terminated["message"] = state.message
            # The API writes an unknown time as null and reads it back as one.
            terminated["startedAt"] = format_time(state.started_at) if state.started_at else None
            terminated["finishedAt"] = format_time(state.finished_at) if state.finished_at else None
            if state.container_id:
                terminated["containerID"] = state.container_id
            return {"terminated": terminated}
        case None:
            return {}


def _state_of(body: JsonObject) -> State:
    if (running := body.get("running")) is not None:
        return Running(parse_time(running["startedAt"]), "")
    if (terminated := body.get("terminated")) is not None:
        return Terminated(
            exit_code=int(terminated.get("exitCode") or 0),
            reason=terminated.get("reason") or "",
            message=terminated.get("message") or "",
            started_at=parse_time(terminated["startedAt"]) if terminated.get("startedAt") else None,
            finished_at=parse_time(terminated["finishedAt"]) if terminated.get("finishedAt") else None,
            container_id=terminated.get("containerID") or "",
        )
    waiting = body.get("waiting") or {}
    return Waiting(waiting.get("reason") or "ContainerCreating", waiting.get("message") or "")
