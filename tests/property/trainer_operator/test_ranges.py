"""Members as text: what is written is what is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.ranges import format_members, in_rank_order, parse_members

MEMBERS = st.sets(
    st.builds(MemberId, st.sampled_from(["master", "worker", "ps"]), st.integers(0, 60)), max_size=60
)


@given(MEMBERS)
def test_what_is_written_is_what_is_read(members):
    """ME1."""
    assert parse_members(format_members(members)) == members


@given(MEMBERS)
def test_the_text_is_a_function_of_the_set(members):
    """ME1: whoever writes it, in whatever order, writes the same."""
    assert format_members(sorted(members)) == format_members(sorted(members, reverse=True))


@given(MEMBERS)
def test_the_order_of_ranks_holds_everyone_once_with_masters_first(members):
    """ME2."""
    ordered = in_rank_order(members)
    assert set(ordered) == members
    assert len(ordered) == len(members)
    keys = [(["master", "worker", "ps"].index(member.role), member.index) for member in ordered]
    assert keys == sorted(keys)


@given(st.text(alphabet="worker:ps,;-0123456789 ", max_size=30))
def test_text_that_is_not_members_is_an_error_and_nothing_else(text):
    try:
        parse_members(text)
    except ValueError:
        pass


@pytest.mark.parametrize("text", ["worker", "worker:", "chief:0", "worker:a", "worker:0-b", ":0"])
def test_an_unreadable_part_is_named(text):
    with pytest.raises(ValueError):
        parse_members(text)


def test_ten_thousand_members_take_less_than_a_kilobyte():
    """ME1."""
    everyone = {MemberId("worker", index) for index in range(10_000)} - {MemberId("worker", 100)}
    servers = {MemberId("ps", index) for index in range(1000)}
    text = format_members(everyone | servers)
    assert text == "worker:0-99,101-9999;ps:0-999"
    assert len(text) < 1000
