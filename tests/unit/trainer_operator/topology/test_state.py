"""The table of member states: total, and what must hold for every order of inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.topology.state import DOWN, READY, TRANSITIONS, WORST, Input, State, step

INPUTS = st.lists(st.sampled_from(list(Input)), max_size=40)


def walk(inputs, start=State.PENDING):
    state = start
    for happened in inputs:
        state = step(state, happened)
    return state


def test_the_table_is_total():
    """ST1: 14 states by 16 inputs."""
    assert (len(State), len(Input)) == (14, 16)
    assert set(TRANSITIONS) == set(State)
    assert all(set(row) == set(Input) for row in TRANSITIONS.values())


def test_every_state_has_its_place_in_the_order_of_badness():
    """ST5."""
    assert sorted(WORST) == sorted(State)
    assert WORST[0] is State.FAILED
    assert WORST[-1] is State.SUCCEEDED


@given(inputs=INPUTS)
def test_nothing_leads_out_of_failed(inputs):
    """ST2: Fa absorbs."""
    assert walk([Input.QUIT, *inputs]) is State.FAILED


@given(
    inputs=st.lists(
        st.sampled_from([one for one in Input if one not in {Input.RESPAWN, Input.REPLACE}]), max_size=20
    )
)
def test_success_beats_every_later_event_of_the_pod(inputs):
    """ST2, FT08: only a new start, by a later epoch or by us, leads out of Succeeded."""
    assert walk([one for one in inputs if one is not Input.INIT], State.SUCCEEDED) is State.SUCCEEDED


@pytest.mark.parametrize("state", [state for state in State if state not in {State.FAILED, State.SUCCEEDED}])
def test_a_loss_is_noticed_in_every_state(state):
    """ST1: Cr or Lo can be reached from every state but the final ones."""
    assert step(state, Input.GONE) is State.LOST
    assert step(state, Input.EXIT_N) in {State.CRASHED, State.LOST}


@pytest.mark.parametrize("happened", [Input.EXIT_0, Input.EXIT_N, Input.GONE, Input.HARD])
def test_a_drained_member_ends_in_lost_however_it_ends(happened):
    """ST3."""
    assert step(State.DRAINING, happened) is State.LOST


@pytest.mark.parametrize("state", list(State))
def test_only_training_members_become_suspect(state):
    """SL1: the stall clock runs in phase train only."""
    became = step(state, Input.SOFT)
    assert (became is State.SUSPECT) == (state in {State.READY, State.SUSPECT})


def test_a_step_after_all_clears_suspicion_and_stall():
    """SL2."""
    assert walk([Input.ADVANCED, Input.SOFT]) is State.SUSPECT
    assert walk([Input.ADVANCED, Input.SOFT, Input.SAME]) is State.SUSPECT
    assert walk([Input.ADVANCED, Input.SOFT, Input.ADVANCED]) is State.READY
    assert walk([Input.ADVANCED, Input.SOFT, Input.HARD, Input.ADVANCED]) is State.READY


def test_ready_and_down_have_nothing_in_common():
    """ST4."""
    assert not READY & DOWN
