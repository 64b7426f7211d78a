"""The search itself: it finds a shortest trace, visits everything, and knows its bounds."""

import pytest

from models.explorer import TooManyStates, explore


def hops(state):
    yield "one", state + 1
    yield "two", state + 2


def test_the_trace_is_a_shortest_one():
    verdict = explore(0, steps=hops, violation=lambda state: "five" if state == 5 else "")
    assert (verdict.broken, len(verdict.trace)) == ("five", 3)
    assert not verdict.safe


def test_every_state_is_visited_once():
    seen = []

    def steps(state):
        seen.append(state)
        yield from ((name, after % 7) for name, after in hops(state))

    verdict = explore(0, steps=steps, violation=lambda _: "")
    assert verdict.safe
    assert verdict.states == 7
    assert sorted(seen) == list(range(7))


def test_a_bad_first_state_has_an_empty_trace():
    assert explore(0, steps=hops, violation=lambda _: "bad").trace == ()


def test_too_many_states_are_refused():
    with pytest.raises(TooManyStates, match="more than 100 states"):
        explore(0, steps=hops, violation=lambda _: "", limit=100)


def test_a_trace_tells_of_states_as_they_are_though_alike_ones_are_visited_once():
    """Two counters that are alike: the trace does not change between them."""

    def steps(state):
        left, right = state
        if not right:
            yield "left", (left + 1, right)
        if not left:
            yield "right", (left, right + 1)

    verdict = explore(
        (0, 0),
        steps=steps,
        violation=lambda state: f"{'left' if state[0] else 'right'} is three" if 3 in state else "",
        representative=lambda state: tuple(sorted(state)),
    )
    assert verdict.trace == ("left", "left", "left")
    assert verdict.broken == "left is three"
    assert verdict.states == 4
