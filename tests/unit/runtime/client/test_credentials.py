"""Tokens and their age."""

import asyncio
import os
import threading

import pytest

from runtime.client.config import ClientConfig
from runtime.client.credentials import Credentials
from runtime.errors import ConfigurationInvalid
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock


@pytest.fixture
def clock():
    return SimClock()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "token"
    path.write_text(" first \n")
    return path


def from_file(path, clock):
    return Credentials(ClientConfig("https://api", token_file=str(path)), clock=clock)


async def test_the_file_is_read_again_after_50_seconds_and_stripped(file, clock):
    """K1: 60 s with 10 s leeway."""
    credentials = from_file(file, clock)
    assert await credentials.token() == "first"
    file.write_text("second")
    clock.advance(49)
    assert await credentials.token() == "first"
    clock.advance(2)
    assert await credentials.token() == "second"


async def test_a_file_that_cannot_be_read_leaves_the_old_token(file, clock):
    """K1."""
    credentials = from_file(file, clock)
    await credentials.token()
    file.unlink()
    clock.advance(60)
    assert await credentials.token() == "first"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
async def test_without_any_token_the_file_is_named(tmp_path, clock, content):
    """K1."""
    path = tmp_path / "absent"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationInvalid, match="absent"):
        await from_file(path, clock).token()


async def test_a_refused_token_is_dropped_only_if_it_is_the_one_that_was_sent(file, clock):
    """K1, RT10."""
    credentials = from_file(file, clock)
    await credentials.token()
    clock.advance(1)
    sent_at = clock.monotonic()
    file.write_text("second")
    assert credentials.refused(sent_at=sent_at)
    clock.advance(1)
    assert await credentials.token() == "second"
    file.write_text("third")
    assert credentials.refused(sent_at=sent_at)  # late news of the same refusal
    assert await credentials.token() == "second"


async def test_a_static_token_cannot_be_refreshed(clock):
    """K1."""
    credentials = Credentials(ClientConfig("https://api", token="fixed"), clock=clock)
    assert await credentials.token() == "fixed"
    assert not credentials.refused(sent_at=clock.monotonic())


def plugin(tmp_path, script, **extra):
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"command": str(path), "apiVersion": "client.authentication.k8s.io/v1", **extra}


async def test_an_exec_plugin_supplies_tokens_until_they_expire(tmp_path, clock):
    """K1."""
    answer = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"%s","expirationTimestamp":"2026-01-01T00:10:00Z"}}'
    )
    spec = plugin(tmp_path, f"cat <<END\n{answer % '$WORD'}\nEND", env=[{"name": "WORD", "value": "given"}])
    credentials = Credentials(ClientConfig("https://api", exec_plugin=spec), clock=clock)
    assert await credentials.token() == "given"
    plugin(tmp_path, f"cat <<END\n{answer % 'renewed'}\nEND")
    clock.advance(589)
    assert await credentials.token() == "given"
    clock.advance(2)
    assert await credentials.token() == "renewed"


@pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "echo '{}'"])
async def test_a_failing_exec_plugin_is_named(tmp_path, clock, script):
    """K1."""
    credentials = Credentials(ClientConfig("https://api", exec_plugin=plugin(tmp_path, script)), clock=clock)
    with pytest.raises(ConfigurationInvalid, match=r"exec plugin .*plugin' failed"):
        await credentials.token()


async def test_a_token_file_that_is_slow_to_read_does_not_hold_up_the_loop(tmp_path, clock):
    """K1: it may lie on a file system that hangs."""
    path = tmp_path / "token"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)  # a reader waits until all writers have left
    has_run_on, in_time = threading.Event(), []

    def write():
        in_time.append(has_run_on.wait(10))
        os.write(pipe, b"late")
        os.close(pipe)

    writer = threading.Thread(target=write)
    writer.start()
    async with TaskScope() as scope:
        reading = scope.spawn(from_file(path, clock).token(), name="token")
        await asyncio.sleep(0.05)
        has_run_on.set()
    writer.join()
    assert in_time == [True]
    assert reading.result() == "late"
