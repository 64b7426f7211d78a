"""Looking at what is measured costs a tenth of the time at most, and a busy server makes no look late by minutes."""

import pytest

from benchmarks.stock.waiting import pause_after


@pytest.mark.parametrize(
    ("look", "pause"),
    [(0.001, 0.05), (0.01, 0.09), (0.1, 0.9), (7.0, 2.0)],
    ids=["cheap", "a tenth", "dear", "the server is busy"],
)
def test_the_pause_is_of_what_the_last_look_took(look, pause):
    assert pause_after(look, at_least=0.05) == pytest.approx(pause)
