"""Quantities."""

from decimal import Decimal

import pytest

from trainer_operator.devcluster.node.quantity import divided, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("500m", "0.5"),
        ("1.5Gi", 1610612736),
        ("2e3", 2000),
        ("1k", 1000),
        ("3E", 3 * 10**18),
        (4, 4),
    ],
)
def test_quantity_is_exact(text, value):
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", "1X", "one", "1 Gi", "nan", "Infinity"])
def test_what_is_no_quantity_is_named(text):
    with pytest.raises(ValueError, match="is no quantity"):
        parse_quantity(text)


def test_division_rounds_up_and_a_divisor_of_zero_is_one():
    assert divided(Decimal("0.3"), Decimal(0)) == 1
    assert divided(parse_quantity("1Gi"), parse_quantity("1Mi")) == 1024
