"""Label selectors."""

import pytest

from runtime.selector import Selector


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "1"}, True),
        ("a=1", {}, False),
        ("a!=1", {}, True),
        ("a!=1", {"a": "1"}, False),
        ("a in (1, 2),b", {"a": "2", "b": ""}, True),
        ("a notin (1,2)", {"a": "2"}, False),
        ("!a", {"a": ""}, False),
        ("example.com/role=x,!gone", {"example.com/role": "x"}, True),
    ],
)
def test_the_text_form_selects_as_the_api_does(text, labels, expected):
    """S8."""
    selector = Selector.parse(text)
    assert selector.matches(labels) is expected
    assert Selector.parse(str(selector)) == selector


def test_the_json_form_reads_both_of_its_parts():
    """S8."""
    selector = Selector.from_object(
        {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    )
    assert str(selector) == "a=2,b=1,c"
    assert Selector.from_object(None).matches(None)
    assert str(Selector.of({"x": "y"})) == "x=y"


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "Near", "values": ["1"]},
        {"key": "a", "operator": "In", "values": []},
        {"key": "a", "operator": "Exists", "values": ["1"]},
    ],
)
def test_a_requirement_that_makes_no_sense_is_refused_by_name(expression):
    """S8."""
    with pytest.raises(ValueError, match="label selector"):
        Selector.from_object({"matchExpressions": [expression]})


@pytest.mark.parametrize("text", ["a in 1", "=1", "a=b c", "a in (1", "-a"])
def test_a_text_that_cannot_be_read_is_refused(text):
    """S8."""
    with pytest.raises(ValueError, match="cannot read"):
        Selector.parse(text)
