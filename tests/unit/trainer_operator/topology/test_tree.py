"""The State Tree: counts that always agree with its members."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.topology.members import MemberId
from trainer_operator.topology.state import Input, State
from trainer_operator.topology.tree import Tree

MEMBERS = [MemberId(role, index) for role in ("worker", "ps") for index in range(3)]
STORY = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(MEMBERS), st.lists(st.sampled_from(list(Input)), max_size=3)),
        st.tuples(st.just(None), st.sets(st.sampled_from(MEMBERS))),
    ),
    max_size=40,
)


def play(story):
    tree = Tree()
    for member, what in story:
        if member is None:
            tree.keep(what)
        else:
            tree.feed(member, what)
    return tree


@given(story=STORY)
def test_counts_of_a_role_equal_a_fresh_count(story):
    """ST5: whatever happens, in any order."""
    tree = play(story)
    for role, rolled in tree.roles.items():
        fresh = Counter(tree.state(member) for member in tree if member.role == role)
        assert {state: count for state, count in rolled.counts.items() if count} == dict(fresh)
        assert (rolled.worst is None) == (not fresh)


def test_a_role_is_as_bad_as_its_worst_member():
    """ST5."""
    tree = Tree()
    tree.feed(MEMBERS[0], [Input.ADVANCED])
    tree.feed(MEMBERS[1], [Input.ADVANCED])
    assert (tree.roles["worker"].worst, tree.roles["worker"].ready) == (State.READY, 2)
    tree.feed(MEMBERS[1], [Input.SOFT])
    assert (tree.roles["worker"].worst, tree.roles["worker"].ready) == (State.SUSPECT, 2)
    tree.feed(MEMBERS[0], [Input.GONE], cause="Lost")
    assert (tree.roles["worker"].worst, tree.roles["worker"].ready) == (State.LOST, 1)


def test_a_cause_stays_until_the_member_is_ready_again():
    """ST4."""
    tree = Tree()
    tree.feed(MEMBERS[0], [Input.EXIT_N], cause="ProcessExited")
    tree.feed(MEMBERS[0], [Input.RESPAWN])
    assert tree.cause(MEMBERS[0]) == "ProcessExited"
    tree.feed(MEMBERS[0], [Input.ADVANCED])
    assert tree.cause(MEMBERS[0]) == ""


def test_a_change_costs_the_same_in_a_large_tree():
    """ST, benchmark by counting: feeding one of ten thousand members touches that member's role only."""
    tree = Tree()
    for index in range(10_000):
        tree.feed(MemberId("worker", index), [Input.ADVANCED])
    before = dict(tree.roles["worker"].counts)
    tree.feed(MemberId("worker", 7), [Input.EXIT_N])
    after = dict(tree.roles["worker"].counts)
    assert (before[State.READY] - after[State.READY], after[State.CRASHED]) == (1, 1)
    assert len(tree) == 10_000
