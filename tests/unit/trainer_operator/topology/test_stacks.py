"""Stacks: what is read of a dump, and which member the others wait for."""

import faulthandler
import os
import threading

import pytest

from trainer_operator.topology.stacks import Frame, outsider, parse, read_look, waits

DUMP = """\
Thread 0x00007f1c2e7fc6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/app/loader.py", line 9 in <lambda>

Current thread 0x00007f1c45b1c740 (most recent call first):
  File "/app/net.py", line 88 in recv_exactly
  File "/app/train.py", line 41 in <module>
"""
SHOWN = "recv_exactly (net.py:88)"

REDUCE = (
    Frame("/lib/torch/distributed/distributed_c10d.py", 2810, "all_reduce"),
    Frame("train.py", 41, "step"),
)
LOAD = (Frame("/app/loader.py", 17, "__next__"), Frame("train.py", 30, "step"))
SAVE = (Frame("/app/save.py", 5, "write"), Frame("train.py", 50, "step"))
SEND = (Frame("/lib/torch/distributed/distributed_c10d.py", 99, "broadcast"), Frame("train.py", 12, "step"))


# -- reading


def test_the_training_thread_is_the_last_one_with_its_last_call_first():
    """SL3."""
    trace = parse(DUMP)
    assert trace == (
        Frame("/app/net.py", 88, "recv_exactly"),
        Frame("/app/train.py", 41, "<module>"),
    )
    assert str(trace[0]) == SHOWN


def test_what_this_python_prints_is_read(tmp_path):
    """SL3: whatever its version; the thread that trains is not the one that prints."""
    printed = tmp_path / "dump"

    def dump():
        with printed.open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)

    printer = threading.Thread(target=dump)
    printer.start()
    printer.join()
    functions = [frame.function for frame in parse(printed.read_text())]
    assert "test_what_this_python_prints_is_read" in functions
    assert os.path.basename(__file__) in {
        frame.file.rpartition("/")[2] for frame in parse(printed.read_text())
    }


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("", 0),
        ("a warning of numpy\n", 0),
        (DUMP + 'a line that another thread wrote\n  File "x.py", line 1 in x\n', 2),
        ("something before\n" + DUMP, 2),
        (DUMP[DUMP.index('  File "/app/net.py') :], 0),
        (DUMP + "...\n", 0),
        (DUMP + "  ...\n", 2),
        (DUMP.replace("line 88", "line ???"), 0),
        (DUMP.replace("740 (most", "740 [MainThread] (most"), 2),
    ],
    ids=[
        "nothing",
        "no dump",
        "more after it",
        "more before it",
        "cut off",
        "too many threads",
        "too deep",
        "no line",
        "named threads",
    ],
)
def test_only_a_whole_stack_of_the_training_thread_counts(text, calls):
    """SL3."""
    assert len(parse(text)) == calls


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {"stacks": DUMP},
        {"stacks": DUMP, "step": "7", "age": 1.0},
        {"stacks": None, "step": 7, "age": 1.0},
        {"stacks": DUMP, "step": 7, "age": float("nan")},
        {"stacks": DUMP, "step": 7, "age": None},
    ],
)
def test_what_does_not_say_when_it_was_is_no_look(value):
    """TX7: agents of before don't, and what they send is not to be trusted."""
    assert read_look(value) is None


def test_a_look_has_step_age_and_place():
    """SL3."""
    look = read_look({"stacks": DUMP, "step": 7, "age": 31})
    assert (look.step, look.age, str(look.trace[0])) == (7, 31.0, SHOWN)


# -- who waits


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("all_reduce", True),
        ("Allreduce", True),
        ("_all_gather_base", True),
        ("sync_global_devices", True),
        ("recv_exactly", True),
        ("monitored_barrier", True),
        ("broadcast_to", False),
        ("wait", False),
        ("step", False),
    ],
)
def test_a_wait_is_known_by_its_name(function, expected):
    """SL3: names that other code uses as well are none."""
    assert waits((Frame("/app/x.py", 1, "inner"), Frame("/app/x.py", 2, function))) is expected


def test_a_wait_far_below_is_none():
    """SL3: it calls back what computes."""
    deep = tuple(Frame("/app/x.py", line, "compute") for line in range(20))
    assert not waits((*deep, Frame("/app/x.py", 1, "all_reduce")))


@pytest.mark.parametrize(
    ("traces", "expected"),
    [
        ([], None),
        ([LOAD], None),
        ([LOAD, SAVE], None),
        ([REDUCE, LOAD], 1),
        ([REDUCE, REDUCE, LOAD], 2),
        ([LOAD, LOAD, LOAD, REDUCE], None),
        ([REDUCE, REDUCE, LOAD, SAVE], None),
        ([LOAD, SAVE, LOAD], 1),
        ([LOAD, SAVE, LOAD, SAVE], None),
        ([LOAD, LOAD, LOAD], None),
        ([REDUCE, REDUCE, SEND], 2),
        ([REDUCE, REDUCE], None),
        ([REDUCE, ()], 1),
        ([LOAD, (), SAVE], 1),
        ([(), ()], None),
        ([()], None),
    ],
    ids=[
        "nobody",
        "one",
        "two, no wait",
        "one of two works",
        "one of three works",
        "one of four waits",
        "two work",
        "one elsewhere",
        "two elsewhere",
        "all at one place",
        "another collective",
        "all in one",
        "one of two is mute",
        "one of three is mute",
        "all are mute",
        "one, mute",
    ],
)
def test_the_only_one_that_does_not_wait_is_waited_for(traces, expected):
    """SL3, SL4: where the stacks don't single out one, they say nothing."""
    assert outsider(dict(enumerate(traces))) == expected
