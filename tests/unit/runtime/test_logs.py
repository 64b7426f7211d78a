"""Logs: one line per event, and no secret in any."""

import io
import json
import logging

import pytest
import structlog

from runtime.logs import REDACTED, configure, get_logger

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"


@pytest.fixture
def stream():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_time_level_and_what_was_bound(stream):
    """Style §9."""
    configure("info", json=True, stream=stream)
    log = get_logger("runtime.test", kind="Pod")
    with structlog.contextvars.bound_contextvars(reconcile_id="r1"):
        log.info("pod created", namespace="ns", name="a")
        log.debug("not shown")
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "pod created",
        "level": "info",
        "component": "runtime.test",
        "kind": "Pod",
        "namespace": "ns",
        "name": "a",
        "reconcile_id": "r1",
    }


@pytest.mark.parametrize(
    "values",
    [
        {"token": "s3cret"},
        {"bearer_token": "s3cret"},
        {"password": b"s3cret"},
        {"headers": {"Authorization": "s3cret"}},
        {"env": [{"client_secret": "s3cret"}]},
        {"error": "401 for Bearer s3cret-abcdef"},
        {"error": f"token {JWT} refused"},
    ],
)
def test_secrets_are_redacted_by_key_and_by_look(stream, values):
    """Style §9."""
    configure(json=True, stream=stream)
    get_logger("runtime.test").info("request failed", **values)
    text = stream.getvalue()
    assert REDACTED in text
    assert "s3cret" not in text
    assert JWT not in text


def test_words_that_only_resemble_secrets_stay(stream):
    """Style §9: a log without its facts helps nobody."""
    configure(json=True, stream=stream)
    get_logger("runtime.test").info("done", tokens_left=5, secret_name="pull", key="ns/a")
    assert REDACTED not in stream.getvalue()


def test_a_secret_in_a_traceback_is_redacted(stream):
    """Style §9."""
    configure(json=True, stream=stream)
    try:
        raise ValueError(f"refused: Bearer {JWT}")
    except ValueError as error:
        get_logger("runtime.test").warning("failed", exc_info=error)
    assert JWT not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_libraries_that_use_logging_are_rendered_alike(stream):
    """Style §9."""
    configure(json=True, stream=stream)
    logging.getLogger("aiohttp.client").warning("slow %s", "server")
    logging.getLogger("aiohttp.client").info("not shown")
    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("slow server", "warning")


def test_text_for_a_terminal(stream):
    """Style §9."""
    configure("debug", json=False, stream=stream)
    get_logger("runtime.test").debug("hello", name="a")
    assert "hello" in stream.getvalue()


def test_an_unknown_level_is_refused_in_one_sentence():
    """Bad input gives one clear sentence."""
    with pytest.raises(ValueError, match="unknown log level 'loud': use debug"):
        configure("loud")
