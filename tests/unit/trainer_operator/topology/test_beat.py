"""Beats: what an agent may say, and what is refused before anything believes it."""

import math

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.views import beat
from trainer_operator.topology.beat import MAX_BEAT_BYTES, MalformedBeat, decode, problem

GOOD = {
    "v": 1,
    "trainer": "ns/t",
    "tuid": "u",
    "pod": "p",
    "role": "worker",
    "idx": 0,
    "attempt": 0,
    "boot": "b",
    "seq": 1,
}


def body(**changes):
    return orjson.dumps({**GOOD, **changes})


def test_a_beat_reads_in_camel_case_with_defaults_for_what_is_absent():
    read = decode(body(psEpoch=3, stepAgeMs=12.5, dtMs=[1.0, 2.0], dataEpoch=4))
    assert (read.ps_epoch, read.step_age_ms, read.dt_ms, read.data_epoch) == (3, 12.5, [1.0, 2.0], 4)
    assert (read.proc, read.hold, read.acks, read.exit) == ("none", 0.0, [], None)


def test_acks_results_and_exit_are_read_with_their_own_types():
    read = decode(
        body(
            acks=[{"ckpt": "c", "shard": 0, "copy": 1, "step": 9}],
            results=[{"id": "d", "ok": False, "value": {"any": [1]}, "error": "past"}],
            exit={"code": 3, "sig": 0, "fingerprint": "E"},
        )
    )
    assert (read.acks[0].copy, read.acks[0].ok) == (1, True)
    assert (read.results[0].value, read.results[0].error) == ({"any": [1]}, "past")
    assert (read.exit.code, read.exit.fingerprint) == (3, "E")


def test_fields_of_a_newer_agent_are_ignored():
    assert decode(body(madeUpLater=[1, 2])).seq == 1


def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_refused():
    """AA7."""
    filler = MAX_BEAT_BYTES - len(body(podName=""))
    largest = body(podName="x" * filler)
    assert len(largest) == MAX_BEAT_BYTES
    assert decode(largest).pod_name == "x" * filler
    with pytest.raises(MalformedBeat, match="at most 65536"):
        decode(body(podName="x" * (filler + 1)))


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'{"v":1}',
        b"\xff\xfe",
        b"[" * 30_000,
        body(seq="1"),
        body(seq=1.5),
        body(seq=None),
        body(role=7),
        body(dtMs="fast"),
        body(acks=[{"ckpt": "c"}]),
        body(acks=[{"ckpt": "c", "shard": "0", "copy": 0}]),
        body(metrics={"loss": "low"}),
        body(exit=3),
        body(have=[1.5]),
    ],
    ids=lambda value: value[-40:].decode("latin-1"),
)
def test_what_is_no_beat_is_refused(broken):
    """AA7."""
    with pytest.raises(MalformedBeat):
        decode(broken)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused_on_the_wire(text):
    """AA7."""
    raw = body(stepAgeMs=0).replace(b'"stepAgeMs":0', b'"stepAgeMs":' + text.encode())
    with pytest.raises(MalformedBeat):
        decode(raw)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["step_age_ms", "phase_age_ms", "hold"])
def test_an_age_that_is_not_finite_is_named(field, value):
    """AA7: even if a decoder let it through."""
    name = msgspec.structs.fields(beat())
    wire = next(entry.encode_name for entry in name if entry.name == field)
    assert problem(beat(**{field: value})).startswith(f"{wire} is ")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_duration_or_figure_that_is_not_finite_is_refused(value):
    """AA7."""
    assert "not finite" in problem(beat(dt_ms=[1.0, value]))
    assert "not finite" in problem(beat(metrics={"loss": value}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"v": 2}, "v is 2"),
        ({"role": "chief"}, "role is 'chief'"),
        ({"proc": "zombie"}, "proc is 'zombie'"),
        ({"steps": "guessed"}, "steps is 'guessed'"),
        ({"idx": -1}, "idx is -1"),
        ({"attempt": -1}, "attempt is -1"),
        ({"epoch": -1}, "epoch is -1"),
        ({"psEpoch": -1}, "psEpoch is -1"),
        ({"run": -1}, "run is -1"),
        ({"seq": -1}, "seq is -1"),
        ({"prepared": -1}, "prepared is -1"),
        ({"step": 2**53 + 1}, "step is"),
        ({"samples": -5}, "samples is -5"),
        ({"dataEpoch": -1}, "dataEpoch is -1"),
        ({"port": 65536}, "port is 65536"),
        ({"port": -1}, "port is -1"),
        ({"stepAgeMs": -1}, "stepAgeMs is -1"),
        ({"phaseAgeMs": -0.5}, "phaseAgeMs is -0.5"),
        ({"hold": -1}, "hold is -1"),
        ({"dtMs": [1.0] * 17}, "too long"),
        ({"metrics": {str(n): 1.0 for n in range(9)}}, "too long"),
        ({"have": list(range(65))}, "too long"),
        ({"chunkPort": 65536}, "chunkPort"),
        ({"holds": ["a/0"] * 5}, "too long"),
        ({"holds": ["a" * 81]}, "too long"),
        ({"waits": "w" * 1025}, "too long"),
        ({"restored": {"ckpt": "c", "peer": -1}}, "restored"),
        ({"restored": {"ckpt": "c" * 65}}, "restored"),
        ({"restored": {"ckpt": "c", "liars": ["l"] * 5}}, "restored"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_out_of_bounds_is_refused_by_name(changes, named):
    """AA7."""
    with pytest.raises(MalformedBeat) as refused:
        decode(body(**changes))
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 2**53},
        {"port": 65535},
        {"dtMs": [1.0] * 16},
        {"metrics": {str(n): 1.0 for n in range(8)}},
        {"have": list(range(64))},
        {"stepAgeMs": 0},
        {"chunkPort": 65535, "holds": ["a" * 80] * 4, "waits": "w" * 1024},
        {"restored": {"ckpt": "c" * 64, "own": 2**53, "liars": ["l" * 80] * 4}},
    ],
)
def test_the_bounds_themselves_are_allowed(changes):
    """AA7."""
    assert decode(body(**changes)).seq == 1


def test_a_refusal_repeats_little_of_what_it_was_sent():
    with pytest.raises(MalformedBeat) as refused:
        decode(body(role="r" * 10_000))
    assert len(str(refused.value)) < 120


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_malformed(data):
    """AA7."""
    try:
        decode(data)
    except MalformedBeat:
        pass


@given(
    st.dictionaries(
        st.sampled_from(
            sorted({*GOOD, "exit", "acks", "results", "dtMs", "metrics", "have", "hold", "port"})
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
)
def test_no_values_raise_anything_but_malformed(changes):
    """AA7: and what is accepted is within the bounds."""
    try:
        read = decode(body(**changes))
    except MalformedBeat:
        return
    assert problem(read) is None
