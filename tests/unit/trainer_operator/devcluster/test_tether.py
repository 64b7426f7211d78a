"""The wrapper's refusals; what it is for is tested on real processes in tests/integration."""

import os

from trainer_operator.devcluster import tether


def test_program_of_a_parent_that_is_gone_is_not_started(monkeypatch):
    monkeypatch.setattr(tether.ctypes, "CDLL", lambda *_, **__: NoTether())
    assert tether.main(["1073741824", "true"]) == tether.CANNOT_START


def test_machine_without_the_tie_starts_nothing_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(tether.ctypes, "CDLL", lambda *_, **__: NoTether(result=-1))
    assert tether.main([str(os.getppid()), "true"]) == tether.CANNOT_START
    assert capsys.readouterr().err.startswith("cannot tie true to its parent")


class NoTether:
    """A C library whose prctl does nothing."""

    def __init__(self, *, result=0):
        self.result = result

    def prctl(self, *_):
        return self.result
