"""Beats as the operator decodes them, and replies as they may come."""

import json

import pytest

from trainer_operator.agent import beats
from trainer_operator.agent.settings import read_settings
from trainer_operator.agent.state import CopyAck, Result, State
from trainer_operator.topology import beat as operator_side

ENVIRONMENT = {
    "TRAINER_NAME": "digits",
    "TRAINER_NAMESPACE": "default",
    "TRAINER_UID": "uid",
    "TRAINER_ROLE": "worker",
    "TRAINER_INDEX": "3",
    "TRAINER_ATTEMPT": "1",
    "TRAINER_POD_UID": "pod",
    "TRAINER_POD_NAME": "digits-worker-3-a1",
    "TRAINER_POD_IP": "10.0.0.3",
}
SETTINGS = read_settings(ENVIRONMENT, folder="/agent")


@pytest.fixture
def state():
    return State(lambda: 100.0)


SEEN = {"cpuTicks": 7, "diskWait": True, "rx": 2**40, "tx": 5, "gpuBusy": 100.0, "gpuPower": 31.5}


def beat_of(state, **more):
    return beats.build(
        SETTINGS, state.view(), boot="b00t", have=[20, 40], **{"hold": 2.0, "seen": SEEN, **more}
    )


def test_the_operator_decodes_what_the_agent_says(state):
    """TX7, AA7: both sides of the wire, one test."""
    state.prepare(2, 31000)
    state.spawn(2, 1, step=40)
    state.spawned(4711)
    state.stepped(41, samples=2624, dt_ms=[12.5], metrics={"accuracy": 0.9})
    state.add_ack(CopyAck("000000000040-e2-00ab", 0, 1, 10, 40, True))
    state.add_result(Result("prepare:2", True, {"port": 31000}))
    decoded = operator_side.decode(beats.encode(beat_of(state)))
    assert (decoded.trainer, decoded.role, decoded.idx, decoded.attempt) == ("default/digits", "worker", 3, 1)
    assert (decoded.epoch, decoded.ps_epoch, decoded.prepared, decoded.port) == (2, 1, 2, 31000)
    assert (decoded.proc, decoded.pid, decoded.phase, decoded.step, decoded.samples) == (
        "running",
        4711,
        "train",
        41,
        2624,
    )
    assert decoded.acks[0].copy == 1
    assert decoded.results[0].value == {"port": 31000}
    assert decoded.have == [20, 40]
    assert (decoded.cpu_ticks, decoded.disk_wait, decoded.rx, decoded.tx) == (7, True, 2**40, 5)
    assert (decoded.gpu_busy, decoded.gpu_power, decoded.phase_budget) == (100.0, 31.5, None)
    state.entered("eval", budget=90.0)
    assert operator_side.decode(beats.encode(beat_of(state))).phase_budget == 90.0
    state.entered("train")
    assert operator_side.decode(beats.encode(beat_of(state))).phase_budget is None
    assert decoded.exit is None
    state.exited(137, 9, fingerprint=None, tail="x" * 5000)
    ended = operator_side.decode(beats.encode(beat_of(state))).exit
    assert (ended.code, ended.sig, ended.step, len(ended.tail)) == (137, 9, 41, 2048)


def test_numbers_that_are_not_finite_never_leave(state):
    """AA7: NaN and infinity are refused by the operator, so they are not sent."""
    state.stepped(1, samples=1, dt_ms=[float("inf"), 1.0], metrics={"loss": float("nan"), "accuracy": 0.5})
    beat = beat_of(state)
    assert beat["dtMs"] == [1.0]
    assert beat["metrics"] == {"accuracy": 0.5}


def test_a_beat_never_outgrows_the_operator_s_limit(state):
    """AA7: 64 KiB; what does not fit waits."""
    for number in range(500):
        state.add_result(Result(f"directive-{number}", False, {"text": "v" * 900}, "e" * 2000))
        state.add_ack(CopyAck("000000000040-e2-00ab", number, 0, 1, 40, False, "e" * 300))
    state.exited(1, 0, fingerprint=None, tail="\x00" * 9000)
    raw = beats.encode(beat_of(state))
    assert len(raw) <= operator_side.MAX_BEAT_BYTES
    assert operator_side.decode(raw).acks


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b'{"hb":"2"}',
        b'{"hb":true}',
        b'{"hb":1e999}',
        b'{"directives":{}}',
        b'{"decided":[]}',
        b'{"close":1}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_reply_is_refused(raw):
    """AG8: it then counts as no answer."""
    with pytest.raises(beats.MalformedReply):
        beats.parse_reply(raw)


def test_a_reply_is_read_and_its_interval_is_bounded():
    """TX1: at most 15 s, never a busy loop."""
    directive = {"id": "go:1", "kind": "Go", "args": {"epoch": 1}}
    body = {
        "epoch": 3,
        "hb": 900,
        "directives": [directive, {"id": ""}, 5],
        "decided": {"c": "commit"},
        "close": False,
    }
    reply = beats.parse_reply(json.dumps(body).encode())
    assert reply == beats.Reply(
        3, 15.0, (beats.Directive("go:1", "Go", {"epoch": 1}),), {"c": "commit"}, close=False
    )
    assert beats.parse_reply(b'{"hb":-4}').hb == 0.05
