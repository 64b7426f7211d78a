"""The page about the command shows what the command prints."""

from pathlib import Path

from trainer_operator.cli.plugin.failure import EXIT_CODES

ROOT = Path(__file__).parents[5]
PAGE = (ROOT / "docs" / "cli.md").read_text()


def test_the_sample_of_the_tree_is_what_the_tree_prints():
    """DC4."""
    assert (ROOT / "tests" / "golden" / "plugin" / "tree.txt").read_text() in PAGE


def test_exit_codes_are_those_of_the_help():
    """CL1."""
    for line in EXIT_CODES.splitlines()[2:]:
        code, meaning = line.split(maxsplit=1)
        assert f"| {code} | {meaning} |" in PAGE.replace("`", "")
