"""Progress in status: rate, part done and estimated end, and silence while nothing moves."""

from datetime import timedelta

import pytest

from simulation.cluster import START, trainer
from simulation.views import OTHER, WORKER, active, agent, exited, observed, pod, with_spec, with_status
from trainer_operator.api.status import MembershipPhase, Phase, ProgressStatus
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.news import LEISURELY

PODS = [(WORKER, pod()), (OTHER, pod(OTHER))]


def running(**changes):
    return with_status(trainer(), active("worker:0-1", world=2, phase=Phase.RUNNING, **changes))


def progress(of, *, step, epoch=0, dt=(500.0, 500.0, 2000.0), now=START):
    agents = [agent(m, step=step, data_epoch=epoch, dt_ms=list(dt)) for m in (WORKER, OTHER)]
    return decide(observed(of=of, pods=PODS, agents=agents, now=now)).status.progress


def test_the_rate_is_that_of_a_usual_step():
    """One slow step, a checkpoint say, does not halve it."""
    found = progress(running(), step=7)
    assert found.steps_per_second == 2.0
    assert (found.percent, found.estimated_completion_time) == (None, None)


def test_an_epoch_that_ended_tells_how_many_steps_there_are():
    """Five epochs of 20 steps at two steps a second."""
    found = progress(running(), step=20, epoch=1)
    assert (found.steps_per_epoch, found.percent) == (20, 20.0)
    assert found.estimated_completion_time == START + timedelta(seconds=40)


def test_the_end_moves_with_the_step_between_two_epochs():
    known = running(global_step=20, epochs_completed=1, progress=ProgressStatus(steps_per_epoch=20))
    found = progress(known, step=30, epoch=1, now=START + timedelta(seconds=10))
    assert (found.percent, found.estimated_completion_time) == (30.0, START + timedelta(seconds=45))


def test_more_steps_than_were_expected_are_never_a_hundred_percent():
    """Only the end is."""
    known = running(global_step=20, epochs_completed=1, progress=ProgressStatus(steps_per_epoch=20))
    found = progress(known, step=500, epoch=1)
    assert (found.percent, found.estimated_completion_time) == (99.9, START)


@pytest.mark.parametrize("dt", [(), (0.0,), (5e-324,), (1e300,)])
def test_durations_that_say_nothing_lead_to_no_end(dt):
    """Beats are untrusted."""
    known = running(global_step=20, epochs_completed=1, progress=ProgressStatus(steps_per_epoch=20))
    assert progress(known, step=21, epoch=1, dt=dt).estimated_completion_time is None


def test_nothing_changes_while_the_step_stands_still():
    """ST7, TR17: whatever the clock says."""
    known = running(global_step=20, epochs_completed=1, progress=ProgressStatus(steps_per_epoch=20))
    for seconds in (0, 3600):
        now = START + timedelta(seconds=seconds)
        assert progress(known, step=20, epoch=1, dt=(9.0,), now=now) == known.status.progress


def test_progress_alone_waits_for_its_turn():
    """ST7: at most one write in five seconds."""
    assert "progress" in LEISURELY


def test_a_suspended_trainer_has_no_end_in_sight_and_keeps_its_part():
    """TR06."""
    done = ProgressStatus(steps_per_second=2, steps_per_epoch=20, percent=30, estimated_completion_time=START)
    of = with_spec(running(global_step=30, epochs_completed=1, progress=done), suspend=True)
    of.status.membership.phase = MembershipPhase.PREPARING
    status = decide(observed(of=of)).status
    assert status.phase is Phase.SUSPENDED
    assert status.progress == ProgressStatus(steps_per_epoch=20, percent=30)


def test_the_end_is_a_hundred_percent():
    done = ProgressStatus(steps_per_second=2, steps_per_epoch=20, percent=80, estimated_completion_time=START)
    of = running(global_step=99, epochs_completed=4, progress=done)
    agents = [agent(m, **exited(0, step=100)) for m in (WORKER, OTHER)]
    status = decide(observed(of=of, pods=PODS, agents=agents)).status
    assert status.phase is Phase.SUCCEEDED
    assert status.progress == ProgressStatus(steps_per_epoch=20, percent=100)
    again = decide(observed(of=with_status(of, status), pods=PODS, agents=agents)).status
    assert again.progress == status.progress
