"""What cells cost by the clock on the wall: what ran side by side counts once."""

import pytest

from benchmarks.stock.costs import costs, occupied, span
from benchmarks.stock.journal import Record
from benchmarks.stock.plan import Cell


def ran(group, began, seconds, arm="ours"):
    return Record(Cell(group, arm, 0), began=began, seconds=seconds)


def test_cells_after_each_other_add_up_and_the_time_between_them_counts_for_none():
    assert occupied([ran("a", 10, 5), ran("a", 15, 5), ran("b", 100, 1)]) == 11


def test_cells_side_by_side_count_once_in_whatever_order_they_ended():
    assert occupied([ran("a", 12, 3), ran("a", 10, 20), ran("b", 25, 10)]) == 25
    assert occupied([]) == 0


def test_the_line_names_the_dearest_group_first():
    records = [ran("small", 0, 62), ran("big", 62, 3600), ran("big", 3000, 100, "raw")]
    assert costs(records) == "3 cells took 1:01:02: big 1:00:00 (2), small 1:02 (1)"


@pytest.mark.parametrize(("seconds", "said"), [(0, "0:00"), (59.9, "0:59"), (125, "2:05"), (3725, "1:02:05")])
def test_a_span_is_read_as_on_a_clock(seconds, said):
    assert span(seconds) == said
