"""The address of the hub, as administrators give it."""

import pytest
import typer

from trainer_operator.cli.operator import _hub


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("https://huggingface.co", "https://huggingface.co"),
        ("https://mirror.example/hf/", "https://mirror.example/hf"),
        ("http://[fd00::1]:8080", "http://[fd00::1]:8080"),
    ],
)
def test_a_hub_or_a_mirror_of_it_is_taken(given, taken):
    """NE3: plain http where the administrator says so."""
    assert _hub(given) == taken


@pytest.mark.parametrize(
    "given",
    [
        "",
        "huggingface.co",
        "ftp://host",
        "https://",
        "https://user:secret@host",
        "https://host?x",
        "https://host/a b",
    ],
)
def test_what_is_no_address_is_refused_with_a_sentence(given):
    """NE3, RD1: least of all one with a password, which all pods would show."""
    with pytest.raises(typer.BadParameter, match="give https://host"):
        _hub(given)
