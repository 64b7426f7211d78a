"""Keeping an event loop responsive."""

import gc

import pytest

from runtime.eventloop import collector_held


def test_the_collector_rests_for_the_block_and_goes_on_even_after_a_failure():
    """PY1."""
    observed = []

    def fail():
        with collector_held():
            observed.append(gc.isenabled())
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert observed == [False]
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    """PY1."""
    gc.disable()
    try:
        with collector_held():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
