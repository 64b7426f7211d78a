"""Locks between processes."""

import multiprocessing
import os
import signal

import pytest

from trainer_operator.devcluster.filelock import AlreadyLocked, locked


def hold(path, connection):
    with locked(path):
        connection.send("held")
        connection.recv()


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock `tmp_path/lock` until its pipe gets a message."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path / "lock", there))
    process.start()
    there.close()
    assert here.recv() == "held"
    yield process, here
    process.kill()
    process.join()
    here.close()


def test_lock_of_another_process_is_refused_at_once_or_after_patience(tmp_path, holder):
    for patience in (0.0, 0.05):
        with pytest.raises(AlreadyLocked), locked(tmp_path / "lock", patience=patience):
            pass


def test_lock_is_free_as_soon_as_its_holder_is_killed(tmp_path, holder):
    process, _ = holder
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with locked(tmp_path / "lock"):
        pass


def test_waiting_is_announced_once_and_ends_with_the_lock(tmp_path, holder):
    _, connection = holder
    announced = []

    def waiting():
        announced.append("waiting")
        connection.send("let go")

    with locked(tmp_path / "lock", waiting=waiting):
        assert announced == ["waiting"]


def test_free_lock_is_taken_without_an_announcement(tmp_path):
    with locked(tmp_path / "new" / "lock", waiting=lambda: pytest.fail("nobody holds it")):
        pass
