"""Patterns that users write: what they find, what is refused, and that none holds the operator up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.api import pattern


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CUDA.*memory", True),
        ("^CUDA", True),
        ("^memory", False),
        (r"\bout\b", True),
        ("(?i)cuda", True),
        ("größer", True),
        ("größ.r$", True),
        ("", True),
    ],
)
def test_what_is_found(text, found):
    """DT2."""
    assert pattern.fault(text) == ""
    assert pattern.is_found(text, "CUDA out of memory: größer") is found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "missing )"),
        ("(?=a)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        (".{1,1000}" * 20, "pattern too large"),
    ],
)
def test_what_is_refused_is_said_and_never_found(text, why):
    """DT2, TR30."""
    assert pattern.fault(text).startswith(why)
    assert not pattern.is_found(text, text)


@pytest.mark.parametrize(
    "text", ["(a+)+$", "^(a|a)*$", "(a|aa)+$", "(.*a){20}$", "(a*)*(a*)*b", "^(([a-z])+.)+[A-Z]$"]
)
def test_a_pattern_that_has_exponentially_many_ways_through_a_text_is_no_problem(text):
    """DT2: each of these keeps an engine that tries all ways busy for longer than anybody lives."""
    assert pattern.fault(text) == ""
    assert not pattern.is_found(text, "a" * 1000 + "!")


@given(st.text(max_size=64), st.text(max_size=64))
def test_any_text_is_a_pattern_or_has_a_fault(text, message):
    """DT2: half a character, as JSON may hold one, is no exception either."""
    found = pattern.is_found(text, message)
    assert not (found and pattern.fault(text))


def test_half_a_character_is_one_as_any_other():
    """DT2: JSON may hold one."""
    assert pattern.fault("\ud800") == ""
    assert pattern.is_found("a.b", "a\ud800b")
