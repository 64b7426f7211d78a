"""What holds for every Trainer whatever happens, checked from the API server's audit log: pure.

The log is a witness of its own: it has every state that a Trainer was ever in, because each write's answer carries the
object, and every pod that was made for it. Resource versions put them in order. A Trainer counts only when the log has
its creation, so a slice of the log says nothing about what began before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trainer_operator.api.names import ATTEMPT_LABEL, INDEX_LABEL, JANITOR_ROLE, NOTEBOOK_ROLE, ROLE_LABEL
from trainer_operator.api.status import AT_REST, TERMINAL
from trainer_operator.devcluster.auditlog import AuditEvent, JsonBody

REST_SLACK = 4
"""Writes that a Trainer at rest may cost besides those with a cause in the log: agents that leave are not in it."""
EXPECTED_REFUSALS = ("being terminated", "exceeded quota")
"""Refusals that say nothing about rights: a namespace on its way out, a full quota."""

FINAL = "a terminal state is final, and a finished Trainer creates nothing"
ONE_POD = "there is one pod for each member and attempt, made after status named the attempt"
QUIET = "nothing is written for an idle or suspended Trainer"
ALLOWED = "the shipped role allows all that the operator asks for"
ONE_COUNT = "a failure is counted once, and counters never fall"
FORWARD = "the step in status goes back only by a recorded rollback"


@dataclass(frozen=True, slots=True)
class Violation:
    """A sentence that did not hold, what was found instead, and the requests that show it."""

    sentence: str
    found: str
    events: tuple[AuditEvent, ...] = ()

    def __str__(self) -> str:
        lines = [f"violated: {self.sentence}", f"  {self.found}", *(f"  {event}" for event in self.events)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class State:
    """A Trainer as an answer showed it."""

    version: int
    event: AuditEvent
    body: JsonBody

    @property
    def status(self) -> JsonBody:
        """Its status; empty at the very beginning."""
        found: JsonBody = self.body.get("status") or {}
        return found

    @property
    def phase(self) -> str:
        """Its phase; empty at the very beginning."""
        return str(self.status.get("phase") or "")

    def number(self, *path: str) -> int:
        """Return a number of the status; 0 where there is none."""
        found: Any = self.status
        for name in path:
            found = (found or {}).get(name)
        return int(found or 0)

    def desires(self, role: str, index: int) -> bool:
        """Whether its spec asks for a member."""
        topology = (self.body.get("spec") or {}).get("topology") or {}
        servers = topology.get("parameterServers", 0) * topology.get("replicationFactor", 1)
        counts = {"worker": topology.get("workers", 1), "ps": servers}
        return index < int(counts.get(role, topology.get("masters", 0)))

    @property
    def is_released(self) -> bool:
        """Whether none of its pods shall live: it is suspended, or gave its nodes back and waits (gang start)."""
        return self.phase == "Suspended" or "notBefore" in (self.status.get("gang") or {})

    def members(self) -> dict[tuple[str, int], JsonBody]:
        """Return the member records by role and index."""
        return {(entry["role"], entry["index"]): entry for entry in self.status.get("members") or ()}


@dataclass(frozen=True, slots=True)
class MadePod:
    """A pod that was created for a member."""

    version: int
    event: AuditEvent
    role: str
    index: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index} attempt {self.attempt}"


@dataclass(slots=True)
class History:
    """Everything that the log says of one Trainer."""

    namespace: str
    name: str
    states: list[State] = field(default_factory=list)
    pods: list[MadePod] = field(default_factory=list)
    checkpoints: list[tuple[int, AuditEvent]] = field(default_factory=list)
    causes: list[int] = field(default_factory=list)
    """Positions in the log of requests about its pods and checkpoints, after which the operator may look again."""
    positions: dict[int, int] = field(default_factory=dict)
    """Position in the log of each state's event, by identity."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def before(self, version: int) -> State | None:
        """Return the newest state that is older than a version."""
        return next((state for state in reversed(self.states) if state.version < version), None)


def check(events: Sequence[AuditEvent], *, operator: str) -> list[Violation]:
    """Return everything in the log that breaks an invariant; `operator` is the user name of the shipped role."""
    found = list(refusals(events, operator=operator))
    for history in histories(events):
        for rule in RULES:
            found += rule(history, operator)
    return found


def histories(events: Sequence[AuditEvent]) -> list[History]:
    """Sort the log by Trainer; only those whose creation it has."""
    known: dict[str, History] = {}
    for position, event in enumerate(events):
        body = event.response_object
        if event.object_ref.resource != "trainers" or not event.ok or body is None:
            continue
        metadata = body.get("metadata") or {}
        uid = metadata.get("uid", "")
        if event.response_status.code == 201 and not event.object_ref.subresource:
            known.setdefault(uid, History(metadata.get("namespace", ""), metadata["name"]))
        if uid in known and body.get("kind") == "Trainer" and "resourceVersion" in metadata:  # not a dry run
            known[uid].states.append(State(int(metadata["resourceVersion"]), event, body))
            known[uid].positions[id(event)] = position
    for position, event in enumerate(events):
        _add_child(known, position, event)
    for history in known.values():
        history.states.sort(key=lambda state: state.version)
        history.pods.sort(key=lambda pod: pod.version)
    return list(known.values())


def _add_child(known: dict[str, History], position: int, event: AuditEvent) -> None:
    target = event.object_ref
    if target.resource not in {"pods", "checkpoints"} or not event.ok:
        return
    body = event.response_object or {}
    metadata = body.get("metadata") or {}
    owners: list[JsonBody] = metadata.get("ownerReferences") or []
    owner: JsonBody = next((o for o in owners if o.get("controller")), {})
    name = target.name or metadata.get("name", "")
    for uid, history in known.items():
        if history.namespace != target.namespace:
            continue
        if owner.get("uid") == uid or name.startswith(f"{history.name}-"):
            history.causes.append(position)
        stored = (
            event.response_status.code == 201 and "resourceVersion" in metadata
        )  # a dry run stores nothing
        if owner.get("uid") != uid or not stored or target.subresource:
            continue
        version = int(metadata["resourceVersion"])
        if target.resource == "checkpoints":
            history.checkpoints.append((version, event))
            continue
        labels = metadata.get("labels") or {}
        role, index = labels.get(ROLE_LABEL, ""), int(labels.get(INDEX_LABEL, 0))
        if role in {JANITOR_ROLE, NOTEBOOK_ROLE}:
            continue  # no member: it does the store's work, also after the end
        history.pods.append(MadePod(version, event, role, index, int(labels.get(ATTEMPT_LABEL, 0))))


def refusals(events: Iterable[AuditEvent], *, operator: str) -> Iterator[Violation]:
    """Every request that was refused for want of a right (RB5, TR41)."""
    for event in events:
        message = event.response_status.message
        if event.response_status.code != 403 or event.user.username != operator:
            continue
        if not any(expected in message for expected in EXPECTED_REFUSALS):
            yield Violation(ALLOWED, "a request was refused", (event,))


def terminal_is_final(history: History, operator: str) -> Iterator[Violation]:
    """After Succeeded or Failed nothing that was said is taken back, and nothing is made (TR02, TR05)."""
    del operator
    end = next((state for state in history.states if state.phase in TERMINAL), None)
    if end is None:
        return
    kept = ("phase", "reason", "completionTime", "failures", "disruptions", "restarts")
    for before, after in pairwise(history.states):
        changed = [name for name in kept if before.status.get(name) != after.status.get(name)]
        if before.phase in TERMINAL and changed:
            words = ", ".join(f"{n} {before.status.get(n)!r} to {after.status.get(n)!r}" for n in changed)
            yield Violation(FINAL, f"{history} changed {words}", (before.event, after.event))
    for version, event in [*((pod.version, pod.event) for pod in history.pods), *history.checkpoints]:
        if version > end.version:
            yield Violation(FINAL, f"{history} was {end.phase} and made this", (end.event, event))


def one_pod_per_attempt(history: History, operator: str) -> Iterator[Violation]:
    """A name is used again only after its member was not wanted for a while (ME4, R1, RC4)."""
    del operator
    last: dict[tuple[str, int, int], MadePod] = {}
    for pod in history.pods:
        key = (pod.role, pod.index, pod.attempt)
        earlier = last.get(key)
        if earlier is not None and not any(
            state.is_released or not state.desires(pod.role, pod.index)
            for state in history.states
            if earlier.version < state.version < pod.version
        ):
            yield Violation(ONE_POD, f"{history} made {pod} twice", (earlier.event, pod.event))
        last[key] = pod
        state = history.before(pod.version)
        record = state.members().get((pod.role, pod.index), {}) if state is not None else {}
        if state is not None and int(record.get("attempt") or 0) != pod.attempt:
            found = f"{history} made {pod}, status named attempt {record.get('attempt') or 0}"
            yield Violation(ONE_POD, found, (state.event, pod.event))


def quiet_when_idle(history: History, operator: str) -> Iterator[Violation]:
    """A write changes something, and at rest there is a cause for each (TR17, rule 4 of the architecture)."""
    for before, after in pairwise(history.states):
        is_write = after.event.user.username == operator and after.event.verb in {"update", "patch"}
        if is_write and after.version == before.version:
            yield Violation(QUIET, f"{history} was written as it was", (after.event,))
    rest: list[State] = []
    for state in [*history.states, None]:
        if state is not None and state.phase in AT_REST:
            rest.append(state)
            continue
        yield from _rest(history, rest, operator)
        rest = []


def _rest(history: History, rest: Sequence[State], operator: str) -> Iterator[Violation]:
    """Compare the operator's writes in one time at rest with what can have caused them."""
    if not rest:
        return
    first, last = (history.positions[id(state.event)] for state in (rest[0], rest[-1]))
    own = [state.event for state in rest[1:] if state.event.user.username == operator]
    others = len(rest) - 1 - len(own)
    causes = others + sum(first < position < last for position in history.causes)
    if len(own) > causes + REST_SLACK:
        found = f"{history} was {rest[0].phase} and written {len(own)} times for {causes} causes"
        yield Violation(QUIET, found, tuple(own[-3:]))


def counted_once(history: History, operator: str) -> Iterator[Violation]:
    """One count for what failed together, each with a failure that was not handled before (RC1, RC3, RC4)."""
    del operator
    handled: set[tuple[tuple[str, int], str]] = set()
    for before, after in pairwise(history.states):
        events = (before.event, after.event)
        for path in COUNTERS:
            if after.number(*path) < before.number(*path):
                change = f"{before.number(*path)} to {after.number(*path)}"
                yield Violation(ONE_COUNT, f"{'.'.join(path)} of {history} fell from {change}", events)
        old, new = before.members(), after.members()
        news = set()
        for member, entry in new.items():
            past = old.get(member, {})
            key = (member, str(entry.get("handled") or ""))
            rise = sum(int(entry.get(n) or 0) - int(past.get(n) or 0) for n in ("failures", "disruptions"))
            if key[1] and key[1] != past.get("handled"):
                news.add(key)
            if rise and (rise > 1 or key not in news or key in handled):
                name = f"{member[0]}-{member[1]}"
                yield Violation(
                    ONE_COUNT, f"{history} counted failure {key[1]!r} of {name} more than once", events
                )
        rise = sum(after.number(name) - before.number(name) for name in ("failures", "disruptions"))
        if rise > 1 or (rise == 1 and not news - handled):
            yield Violation(ONE_COUNT, f"{history} counted {rise} for {len(news - handled)} failures", events)
        handled |= news


COUNTERS = (
    ("failures",),
    ("disruptions",),
    ("restarts",),
    ("rollbacks",),
    ("checkpointSequence",),
    ("membership", "epoch"),
    ("membership", "psEpoch"),
)


def steps_go_forward(history: History, operator: str) -> Iterator[Violation]:
    """A fall of the step comes with a rollback that explains all of it, in the same write (ME7)."""
    del operator
    for before, after in pairwise(history.states):
        old, new = before.number("globalStep"), after.number("globalStep")
        if new >= old:
            continue
        recorded = after.number("rollbacks") > before.number("rollbacks")
        first, last = after.number("lastRollback", "from"), after.number("lastRollback", "to")
        if not (recorded and first >= old and last <= new):
            told = f"rollback {first} to {last}" if recorded else "no rollback"
            found = f"{history} went from step {old} to {new}, recorded was {told}"
            yield Violation(FORWARD, found, (before.event, after.event))


RULES: tuple[Callable[[History, str], Iterator[Violation]], ...] = (
    terminal_is_final,
    one_pod_per_attempt,
    quiet_when_idle,
    counted_once,
    steps_go_forward,
)
