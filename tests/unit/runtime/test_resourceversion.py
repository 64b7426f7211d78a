"""Which version is newer."""

import pytest

from runtime.resourceversion import compare, newer


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("9", "10", -1),
        ("10", "9", 1),
        ("10", "10", 0),
        ("123", "124", -1),
        ("99999999999999999999", "100000000000000000000", -1),
        ("abc", "abc", 0),
    ],
)
def test_longer_is_newer_then_text_decides(first, second, expected):
    """R2."""
    assert compare(first, second) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [("007", "8"), ("8", "x8"), ("", "1"), ("", ""), ("0", "1"), ("1.2", "3"), ("٣", "4")],
)
def test_leading_zeros_and_other_characters_are_not_comparable(first, second):
    """R2."""
    assert compare(first, second) is None
    assert compare(second, first) is None


def test_of_incomparable_versions_the_later_one_counts():
    """R2."""
    assert newer("abc", "xyz") == "xyz"
    assert newer("10", "9") == "10"
    assert newer("9", "10") == "10"
