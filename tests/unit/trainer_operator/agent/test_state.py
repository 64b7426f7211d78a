"""The agent's state: what rises, what is told again, and what is urgent."""

import pytest

from trainer_operator.agent.state import OVERHEARD, CopyAck, Result, State


class Clock:
    def __init__(self):
        self.now = 50.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state(clock):
    return State(clock)


def test_seq_and_run_rise_and_a_new_run_starts_at_its_restore_step(state, clock):
    """TX7."""
    state.prepare(1, 31000)
    state.spawn(1, 0, step=0)
    state.stepped(30, samples=1, dt_ms=[1.0], metrics={"loss": 1.0})
    clock.now += 5
    first = state.view()
    assert (first.run, first.step, first.step_age) == (1, 30, 5.0)
    state.spawn(1, 0, step=20)
    second = state.view()
    assert second.seq > first.seq
    assert (second.run, second.step, second.step_age, second.metrics, second.phase) == (
        2,
        20,
        0.0,
        {},
        "init",
    )


def test_where_it_stands_is_told_with_how_long_ago_that_step_was(state, clock):
    """SL5."""
    state.spawn(1, 0, step=4)
    state.stepped(5, samples=1, dt_ms=[1.0], metrics={})
    clock.now += 7
    assert state.standing() == (5, 7.0)


def test_prepare_forgets_the_exit_and_never_falls_back(state):
    """ME3."""
    state.spawn(1, 0, step=0)
    state.exited(1, 0, fingerprint="F", tail="")
    state.prepare(3, 31000)
    state.prepare(2, 31001)
    view = state.view()
    assert (view.prepared, view.proc, view.exit) == (3, "none", None)


def test_a_result_is_told_until_it_is_no_longer_listed_and_again_when_it_is(state):
    """MG1."""
    state.add_result(Result("go:1", True))
    state.listed(["go:1"], [])
    assert [result.id for result in state.view().results] == ["go:1"]
    assert not state.listed([], ["go:1"])
    assert state.view().results == ()
    assert state.listed(["go:1"], [])
    assert [result.id for result in state.view().results] == ["go:1"]


def test_a_reply_to_a_beat_without_the_result_does_not_silence_it(state):
    """MG1: the operator cannot drop what it has not heard."""
    state.add_result(Result("go:1", True))
    state.listed([], [])
    assert [result.id for result in state.view().results] == ["go:1"]


def test_acks_are_told_until_the_decision(state):
    """AG7, CS11."""
    state.add_ack(CopyAck("a", 0, 0, 1, 40, True))
    state.add_ack(CopyAck("a", 0, 0, 0, 40, False, "late failure"))
    state.add_ack(CopyAck("b", 0, 0, 1, 60, True))
    assert [ack.ok for ack in state.view().acks] == [True, True]
    state.decided({"a": "commit"})
    assert [ack.ckpt for ack in state.view().acks] == ["b"]
    assert state.has_undecided


def test_steps_wait_for_the_next_beat_but_changes_are_urgent(state):
    """TX6."""
    state.spawn(1, 0, step=0)
    state.stepped(1, samples=1, dt_ms=[], metrics={})
    assert state.wait_news(0)  # the first step is a change of phase
    state.stepped(2, samples=1, dt_ms=[], metrics={})
    state.finished_data_epoch(1, {"accuracy": 0.9})
    assert not state.wait_news(0)
    for change in (
        lambda: state.entered("eval"),
        lambda: state.exited(0, 0, fingerprint=None, tail=""),
        lambda: state.prepare(2, 1),
        lambda: state.add_result(Result("x", True)),
    ):
        change()
        assert state.wait_news(0)


def test_draining_is_kept_beyond_the_exit(state):
    """ND6."""
    state.spawn(1, 0, step=0)
    state.entered("draining")
    state.entered("train")
    assert state.phase == "draining"
    state.exited(0, 0, fingerprint=None, tail="")
    assert state.phase == "draining"


def test_silence_counts_from_the_later_of_exit_and_contact(state, clock):
    """AG7."""
    assert state.silent_for() is None
    state.spawn(1, 0, step=0)
    state.spawned(1)
    assert state.silent_for() is None
    state.exited(0, 0, fingerprint=None, tail="")
    clock.now += 100
    assert state.silent_for() == 100
    state.heard()
    clock.now += 5
    assert state.silent_for() == 5
    state.prepare(2, 1)
    assert state.silent_for() is None


def test_that_the_process_listens_is_told_at_once_and_belongs_to_its_run(state):
    """TR47, TX7: what was true of an earlier process is not true of this one."""
    state.prepare(1, 31000)
    state.spawn(1, 0, step=0, listening=False)
    assert state.view().listening is False
    state.wait_news(0)
    state.listens(1)
    assert state.wait_news(0)
    assert state.view().listening is True
    state.spawn(1, 0, step=0, listening=False)
    state.listens(1)
    assert state.view().listening is False
    state.prepare(2, 31000)
    assert state.view().listening is None


def test_a_soft_epoch_needs_no_preparation_and_never_falls_back(state):
    """ME5: the process goes on, so nothing of an older epoch runs any more."""
    state.prepare(1, 31000)
    state.spawn(1, 3, step=0)
    state.greeted(soft_epochs=True)
    state.rolled_to(4, 40, epoch=2)
    state.rolled_to(4, 40, epoch=1)
    view = state.view()
    assert (view.epoch, view.prepared, view.ps_epoch, view.step, view.soft_epochs) == (2, 2, 4, 40, True)
    state.spawn(2, 4, step=40)
    assert not state.view().soft_epochs


# -- code without the SDK


def running(state, *, step=0):
    state.spawn(1, 0, step=step)
    state.spawned(77)
    return state.run


def overheard(state, clock, run, step):
    """Have a program be known for one that prints its steps."""
    state.printed(run, step)
    clock.now += OVERHEARD
    state.settle(300)


def test_printed_steps_are_steps_until_the_sdk_speaks(state, clock):
    """AG5: a number that was printed before the program said hello was none of training."""
    run = running(state, step=3)
    assert state.view().steps == "none"
    overheard(state, clock, run, 500)
    view = state.view()
    assert (view.phase, view.steps, view.step, view.step_age) == ("train", "output", 500, OVERHEARD)
    assert state.is_plain
    assert state.wait_news(0)
    state.greeted(soft_epochs=False)
    state.printed(run, 501)
    state.settle(300)
    view = state.view()
    assert (view.phase, view.steps, view.step) == ("init", "sdk", 3)
    assert not state.is_plain


def test_a_number_that_comes_with_the_hello_is_never_reported(state, clock):
    """AG5: output and the SDK's socket are read by two threads, and either may be first."""
    run = running(state, step=3)
    state.printed(run, 4)
    state.settle(300)
    assert (state.view().phase, state.view().steps, state.view().step) == ("init", "none", 3)
    clock.now += 1
    state.greeted(soft_epochs=False)
    clock.now += 600
    state.settle(300)
    assert (state.view().phase, state.view().steps, state.view().step) == ("init", "sdk", 3)


def test_a_number_that_is_not_new_is_no_progress_and_a_smaller_one_lowers_nothing(state, clock):
    """AG5, SL5, ME7."""
    run = running(state)
    overheard(state, clock, run, 10)
    clock.now += 3
    state.printed(run, 10)
    assert state.view().step_age == 8.0
    state.printed(run, 14)
    assert state.view().dt_ms == (2000.0,)
    clock.now += 5
    state.printed(run, 2)
    view = state.view()
    assert (view.step, view.step_age, view.dt_ms) == (14, 0.0, (2000.0,))


def test_a_program_that_ends_at_once_still_tells_its_last_step(state):
    """AG5."""
    run = running(state)
    state.printed(run, 10)
    assert state.exited(0, 0, fingerprint=None, tail="").step == 10
    assert (state.view().step, state.view().phase) == (10, "done")


def test_what_an_earlier_process_still_prints_is_not_of_the_new_one(state, clock):
    """AG5, TX7."""
    old = running(state)
    running(state)
    overheard(state, clock, old, 10)
    assert (state.view().step, state.view().phase) == (0, "init")


def test_a_process_that_says_nothing_is_taken_for_one_without_the_sdk(state, clock):
    """AG5: it trains, as far as anybody can tell."""
    running(state)
    clock.now += 299
    state.settle(300)
    assert state.view().phase == "init"
    clock.now += 1
    state.settle(300)
    assert (state.view().phase, state.view().steps) == ("train", "none")
    assert state.wait_news(0)


def test_a_pod_whose_code_once_spoke_is_waited_for(state, clock):
    """AG5, SL1: the next process may hang before its hello, and has the budget of a start."""
    running(state)
    state.greeted(soft_epochs=False)
    running(state)
    clock.now += 3600
    state.settle(300)
    assert state.view().phase == "init"


def test_a_program_that_is_told_to_end_does_not_begin_to_train(state, clock):
    """AG5, ND6."""
    run = running(state)
    state.entered("draining")
    overheard(state, clock, run, 10)
    assert (state.view().phase, state.view().step) == ("draining", 10)
