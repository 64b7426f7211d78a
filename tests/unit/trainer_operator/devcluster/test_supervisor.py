"""When the supervisor starts a component again."""

from trainer_operator.devcluster.supervisor import Restarts


def test_first_end_is_answered_at_once():
    restarts = Restarts().after_end(100.0)
    assert (restarts.due, restarts.count) == (100.0, 1)


def test_component_that_keeps_ending_is_started_ever_more_slowly_up_to_a_cap():
    restarts, now, delays = Restarts(), 100.0, []
    for _ in range(8):
        restarts = restarts.after_end(now)
        delays.append(restarts.due - now)
        now = restarts.due
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert restarts.count == 8


def test_component_that_ran_for_a_minute_is_answered_at_once_again():
    restarts = Restarts().after_end(100.0).after_end(100.0).after_end(161.0)
    assert restarts.due == 161.0
    assert restarts.count == 3
