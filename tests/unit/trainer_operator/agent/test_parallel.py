"""Several calls at a time: answers in order, and the first failure is the one that is raised."""

import threading

import pytest

from trainer_operator.agent.parallel import WIDTH, each


def test_answers_come_in_the_order_of_the_items_whoever_is_first():
    """FZ3: the first call ends last."""
    others = threading.Event()

    def call(number):
        if number == 0:
            assert others.wait(60)
        else:
            others.set()
        return number * 2

    assert each(call, range(3 * WIDTH)) == [number * 2 for number in range(3 * WIDTH)]


def test_no_more_than_the_width_run_at_a_time():
    """FZ3: memory holds so many pieces."""
    running, most, lock, all_there = set(), [0], threading.Lock(), threading.Barrier(3)

    def call(number):
        with lock:
            running.add(number)
            most[0] = max(most[0], len(running))
        all_there.wait(60)
        with lock:
            running.discard(number)

    each(call, range(9), width=3)
    assert most == [3]


def test_one_item_needs_no_thread():
    assert each(lambda _: threading.current_thread(), ["one"]) == [threading.current_thread()]
    assert each(lambda _: None, []) == []


def test_a_failed_call_is_raised_after_the_others_ended():
    """QR3: nothing of a copy is still being written when its failure is reported."""
    ended = []

    def call(number):
        if number == 1:
            raise OSError("no")
        ended.append(number)

    with pytest.raises(OSError, match="no"):
        each(call, range(4))
    after = list(ended)
    assert {0, 2, 3} - set(after) <= {2, 3}
    assert ended == after


def test_items_are_made_only_when_a_call_is_free_to_take_them():
    """FZ3: what is made is in memory."""
    taken, ended, lock, most = [0], [0], threading.Lock(), [0]

    def items():
        for number in range(50):
            taken[0] += 1
            with lock:
                most[0] = max(most[0], taken[0] - ended[0])
            yield number

    def call(number):
        with lock:
            ended[0] += 1
        return number

    assert each(call, items(), width=3) == list(range(50))
    assert most[0] <= 3 + 2  # the one that is being made, and calls that have ended but do not count yet


def test_after_a_failure_no_more_items_are_taken():
    """QR3: a copy that failed is not read to its end."""
    taken = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    def call(number):
        raise OSError(number)

    with pytest.raises(OSError, match=r"^0$"):
        each(call, items(), width=2)
    assert len(taken) <= 4
