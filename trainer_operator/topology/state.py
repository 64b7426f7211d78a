"""The states of a member and the one table that says how it moves between them (ST1, ST2, ST5).

The table is total: 14 states by 16 inputs. It is written down as in the design, a row for each state, so that the
two can be compared line by line; `.` stays.

States:  Pe Pending, St Starting, Rv Rendezvous, Rd Ready, Ck Checkpointing, Wp WaitingPS, Pa Paused, Dr Draining,
         Su Suspect, Sd Stalled, Cr Crashed, Lo Lost, Ok Succeeded, Fa Failed
Inputs:  a beat's phase (init rdzv adv same ckpt wps paus drn), the stall clock (soft hard), an end (ex0 exN gone),
         and our own recorded decisions to respawn, to replace and to give up (resp repl quit)
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """What a member is doing, as far as can be known."""

    PENDING = "Pending"
    STARTING = "Starting"
    RENDEZVOUS = "Rendezvous"
    READY = "Ready"
    CHECKPOINTING = "Checkpointing"
    WAITING_PS = "WaitingPS"
    PAUSED = "Paused"
    DRAINING = "Draining"
    SUSPECT = "Suspect"
    STALLED = "Stalled"
    CRASHED = "Crashed"
    LOST = "Lost"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Input(StrEnum):
    """What can happen to a member."""

    INIT = "init"
    RENDEZVOUS = "rdzv"
    ADVANCED = "adv"
    SAME = "same"
    CHECKPOINT = "ckpt"
    WAITING_PS = "wps"
    PAUSED = "paus"
    DRAINING = "drn"
    SOFT = "soft"
    HARD = "hard"
    EXIT_0 = "ex0"
    EXIT_N = "exN"
    GONE = "gone"
    RESPAWN = "resp"
    REPLACE = "repl"
    QUIT = "quit"


_SHORT = dict(
    zip(
        ("Pe", "St", "Rv", "Rd", "Ck", "Wp", "Pa", "Dr", "Su", "Sd", "Cr", "Lo", "Ok", "Fa"),
        State,
        strict=True,
    )
)

_TABLE = """
     init rdzv adv same ckpt wps paus drn soft hard ex0 exN gone resp repl quit
Pe   St   Rv   Rd  Rv   Ck   Wp  Pa   Dr  .    .    Ok  Cr  Lo   .    .    Fa
St   .    Rv   Rd  Rv   Ck   Wp  Pa   Dr  .    Sd   Ok  Cr  Lo   .    Pe   Fa
Rv   St   .    Rd  .    Ck   Wp  Pa   Dr  .    Sd   Ok  Cr  Lo   St   Pe   Fa
Rd   St   Rv   .   .    Ck   Wp  Pa   Dr  Su   Sd   Ok  Cr  Lo   St   Pe   Fa
Ck   St   Rv   Rd  Rd   .    Wp  Pa   Dr  .    Sd   Ok  Cr  Lo   St   Pe   Fa
Wp   St   Rv   Rd  Rd   Ck   .   Pa   Dr  .    Sd   Ok  Cr  Lo   St   Pe   Fa
Pa   St   Rv   Rd  Rd   Ck   Wp  .    Dr  .    .    Ok  Cr  Lo   St   Pe   Fa
Dr   .    .    .   .    .    .   .    .   .    Lo   Lo  Lo  Lo   .    Pe   Fa
Su   St   Rv   Rd  .    Ck   Wp  Pa   Dr  .    Sd   Ok  Cr  Lo   St   Pe   Fa
Sd   St   Rv   Rd  .    Ck   Wp  Pa   Dr  .    .    Ok  Cr  Lo   St   Pe   Fa
Cr   St   Rv   Rd  Rv   Ck   Wp  Pa   Dr  .    .    .   .   Lo   St   Pe   Fa
Lo   St   Rv   Rd  Rv   Ck   Wp  Pa   Dr  .    .    Ok  Cr  .    .    Pe   Fa
Ok   St   .    .   .    .    .   .    .   .    .    .   .   .    St   Pe   .
Fa   .    .    .   .    .    .   .    .   .    .    .   .   .    .    .    .
"""


def _read(table: str) -> Mapping[State, Mapping[Input, State]]:
    head, *lines = (line.split() for line in table.strip().splitlines())
    inputs = [Input(name) for name in head]
    rows: dict[State, Mapping[Input, State]] = {}
    for name, *cells in lines:
        state = _SHORT[name]
        moves = {one: state if cell == "." else _SHORT[cell] for one, cell in zip(inputs, cells, strict=True)}
        rows[state] = MappingProxyType(moves)
    return MappingProxyType(rows)


TRANSITIONS = _read(_TABLE)
"""The whole table."""

WORST = (
    State.FAILED,
    State.STALLED,
    State.LOST,
    State.CRASHED,
    State.SUSPECT,
    State.WAITING_PS,
    State.PENDING,
    State.STARTING,
    State.RENDEZVOUS,
    State.DRAINING,
    State.PAUSED,
    State.CHECKPOINTING,
    State.READY,
    State.SUCCEEDED,
)
"""States from the worst to the best; a role is as bad as its worst member (ST5)."""

READY = frozenset({State.READY, State.CHECKPOINTING, State.SUSPECT})
"""States in which a member trains or could (ST4)."""

DOWN = frozenset({State.CRASHED, State.LOST, State.STALLED})
"""States that a recovery has to mend (ST6)."""


def step(state: State, happened: Input) -> State:
    """Return the state after an input. Total: every state takes every input."""
    return TRANSITIONS[state][happened]
