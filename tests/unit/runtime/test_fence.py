"""The fence, shut by default and never opened twice."""

import threading

import pytest

from runtime.errors import RuntimeFault
from runtime.fence import AlwaysOpen, Fence, LeadershipLost
from runtime.leaderelection.step import Terms
from runtime.testing.clock import SimClock


def test_a_fence_is_shut_until_it_is_opened():
    """L6."""
    fence = Fence(SimClock())
    with pytest.raises(LeadershipLost, match="has not acquired"):
        fence.check()
    assert fence.remaining(0) == 0
    assert not fence.is_open


def test_writing_is_allowed_until_the_very_moment_it_ends():
    """L6, L9."""
    clock = SimClock(start=100)
    fence = Fence(clock)
    assert fence.open(110)
    clock.advance(9.999)
    fence.check()
    assert fence.remaining(clock.monotonic()) == pytest.approx(0.001)
    clock.advance(0.001)
    with pytest.raises(LeadershipLost, match="not renewed in time"):
        fence.check()
    assert fence.remaining(clock.monotonic()) == 0


def test_a_late_renewal_does_not_reopen_an_expired_fence():
    """L6: no re-election in one process."""
    clock = SimClock(start=100)
    fence = Fence(clock)
    fence.open(110)
    clock.advance(10)
    assert not fence.open(125)
    with pytest.raises(LeadershipLost):
        fence.check()


def test_an_extension_never_shortens():
    """L6."""
    clock = SimClock(start=100)
    fence = Fence(clock)
    fence.open(110)
    assert fence.open(105)
    assert fence.remaining(100) == 10


def test_closing_is_final_and_keeps_the_first_reason():
    """L6."""
    fence = Fence(SimClock(start=0))
    fence.open(100)
    fence.close("stopping")
    fence.close("again")
    assert not fence.open(1000)
    assert fence.remaining(0) == 0
    with pytest.raises(LeadershipLost, match="stopping"):
        fence.check()


def test_a_fence_closed_before_it_was_opened_stays_shut():
    """L6."""
    fence = Fence(SimClock())
    fence.close()
    assert not fence.open(1e9)
    assert not fence.is_open


def test_checks_from_many_threads_agree_on_the_end():
    """L9: whoever is told no, nobody after him is told yes."""
    clock = SimClock(start=0)
    fence = Fence(clock)
    fence.open(50)
    answers: list[tuple[int, bool]] = []
    order = iter(range(10**6))
    lock = threading.Lock()

    def ask():
        for _ in range(300):
            with lock:  # so that the order of the answers is known
                clock.advance(0.1)
                answers.append((next(order), fence.is_open))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [is_open for _, is_open in sorted(answers)]
    assert told == sorted(told, reverse=True)
    assert True in told
    assert False in told


def test_without_election_writing_never_ends():
    """L6."""
    fence = AlwaysOpen()
    fence.check()
    assert fence.remaining(1e9) == float("inf")


def test_lost_leadership_is_a_fault_of_the_runtime():
    """Style §7."""
    assert issubclass(LeadershipLost, RuntimeFault)


def test_a_write_must_end_when_the_terms_of_the_lease_let_a_rival_write():
    """L6: the grace is what the terms leave between the two, not a constant."""
    clock = SimClock(0.0)
    fence = Fence(clock)
    assert fence.time_to_end(clock.monotonic()) == 0.0
    fence.open(10, grace=Terms("me").in_flight_grace)
    clock.advance(4)
    assert fence.time_to_end(clock.monotonic()) == 6 + 5
    quick = Fence(clock)
    quick.open(6, grace=Terms("me", lease_duration=3, renew_deadline=2, retry_period=0.5).in_flight_grace)
    assert quick.time_to_end(clock.monotonic()) == 2 + 1


def test_a_lease_whose_record_is_rounded_down_leaves_less_grace():
    """L6: a rival goes by the record, which is in whole seconds."""
    assert Terms("me", lease_duration=3.4, renew_deadline=2.5, retry_period=0.5).in_flight_grace == 0.5
    assert Terms("me", lease_duration=2.4, renew_deadline=2.2, retry_period=0.5).in_flight_grace == 0.0
    assert Terms("me", lease_duration=2.6, renew_deadline=2.0, retry_period=0.5).in_flight_grace == 2.6 - 2.0


def test_a_process_without_election_has_no_end():
    """L6."""
    assert AlwaysOpen().time_to_end(1.0) == float("inf")
