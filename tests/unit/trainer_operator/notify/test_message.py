"""The words of a message: templates of the administrator, text of tenants."""

from datetime import UTC, datetime
from email.header import Header
from string import Template

import hypothesis.strategies as st
import pytest
from hypothesis import given

from simulation.cluster import trainer
from trainer_operator.notify.message import Templates, message, template_fault
from trainer_operator.notify.notice import Notice
from trainer_operator.notify.text import for_card, one_line
from trainer_operator.notify.triggers import Trigger

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def written(text="worker-0 failed", *, count=1, templates=None):
    notice = Notice(Trigger.RECOVERING, "team", NOW, count, "a", text)
    return message(trainer(), notice, NOW, templates or {})


def test_a_message_says_who_what_and_when():
    found = written()
    assert found.title == "[Warning] Trainer default/t: Recovering"
    assert found.body == "worker-0 failed (2026-01-01T00:00:00Z)"


def test_a_message_that_stands_for_several_says_so():
    assert "3 times since the last message" in written(count=3).body


def test_the_administrators_template_is_used_for_its_trigger_only():
    """NT1."""
    own = {Trigger.RECOVERING: Templates(Template("$trainer is away"), Template("step $step: $text"))}
    assert written(templates=own).title == "t is away"
    assert written(templates={Trigger.FAILED: own[Trigger.RECOVERING]}).title.startswith("[Warning]")


@pytest.mark.parametrize("attack", ["${key}", "$text$text", "{{7*7}}", "%s%n", "$$"])
def test_tenants_text_is_never_a_template(attack):
    """UC1, ATK20."""
    assert attack in written(attack).body


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("$trainer $$5", ""),
        ("costs $", "has a $ that names nothing"),
        ("$password", "names $password; there are $trainer"),
    ],
)
def test_a_template_is_checked_when_it_is_read(text, fault):
    assert template_fault(text).startswith(fault) if fault else template_fault(text) == ""


@given(st.text())
def test_no_text_brings_a_line_end_or_a_control_character(text):
    """NT5, RD4: CR and LF cannot reach a header."""
    found = written(text)
    for each in (found.title, found.body):
        assert len(each.splitlines()) <= 1
        assert each.isprintable() or " " in each
        assert "\n" not in Header(each, "utf-8", maxlinelen=10**6).encode()


def test_text_that_turns_its_direction_or_colours_a_terminal_is_stripped():
    """RD4, ATK13."""
    assert one_line("a\x1b[31mb\u202ec\u200bd\r\nBcc: x", 100) == "a [31mb c d Bcc: x"


@given(st.text())
def test_a_card_has_no_mention_link_or_emphasis_of_a_tenant(text):
    """NT5."""
    assert not set(for_card(text)) & set("<>[]`*_~#\\")
