"""Last words and fingerprints."""

import json

from trainer_operator.agent.lastwords import MAX_BYTES, fingerprint, last_words, redact
from trainer_operator.agent.state import Exit

TRACEBACK = """warming up
Traceback (most recent call last):
  File "/app/train.py", line {line}, in main
    step(batch)
  File "/app/model.py", line 7, in step
    return loss / count
           ~~~~~^~~~~~~
ZeroDivisionError: division by zero at {line}
"""


def test_the_same_mistake_has_the_same_name_on_any_line():
    """RC5: exception type and top frames."""
    names = {fingerprint(TRACEBACK.format(line=line)) for line in (10, 99)}
    assert names == {"ZeroDivisionError@model.py:step<train.py:main"}


def test_the_last_traceback_counts():
    """RC5."""
    text = TRACEBACK.format(line=1) + TRACEBACK.format(line=2).replace(
        "ZeroDivisionError", "app.errors.Broken"
    )
    assert fingerprint(text).startswith("app.errors.Broken@")


def test_output_without_a_traceback_has_no_fingerprint():
    """RC5: a bare exit code never triggers DeterministicFailure."""
    assert fingerprint("Killed\n") is None
    assert fingerprint("Traceback (most recent call last):\n  File cut") is None


def test_secrets_do_not_leave_the_pod():
    """AG6."""
    environment = {
        "HF_TOKEN": "hf_abcdef123",
        "DB_PASSWORD": "short",
        "HOME": "/root",
        "TRAINER_TOKEN_FILE": "/run/token",
    }
    text = redact("get hf_abcdef123 Authorization: Bearer abc.def-ghi from /root and /run/token", environment)
    assert text == "get [redacted] Authorization: Bearer [redacted] from /root and /run/token"


def test_last_words_fit_and_keep_the_end():
    """AG6: 4 KiB, the end of the tail is what matters."""
    words = last_words(Exit(1, 0, 7, "F", "é" * 4000 + "the end"))
    assert len(words) <= MAX_BYTES
    parsed = json.loads(words)
    assert (parsed["exit"], parsed["step"], parsed["fingerprint"]) == (1, 7, "F")
    assert parsed["tail"].endswith("the end")
    assert json.loads(last_words(None)) == {"exit": None}
