"""Container states and what a restarted node makes of them."""

import signal
from datetime import UTC, datetime

from trainer_operator.devcluster.node.containerstate import (
    ContainerRecord,
    Running,
    Terminated,
    Waiting,
    exit_code_of,
    reason_of,
    recorded,
    state_json,
)

NOW = datetime(2026, 12, 2, 8, tzinfo=UTC)


def test_exit_codes_are_those_of_container_runtimes():
    assert exit_code_of(3 << 8) == 3
    assert exit_code_of(signal.SIGKILL) == 137
    assert exit_code_of(signal.SIGSEGV | 0x80) == 139


def test_reason_names_memory_before_the_code():
    assert [reason_of(0), reason_of(1), reason_of(137, out_of_memory=True)] == [
        "Completed",
        "Error",
        "OOMKilled",
    ]


def test_states_survive_being_written_and_read():
    end = Terminated(1, "Error", "why", NOW, NOW, "process://x")
    record = ContainerRecord("c", end, end, restarts=2)
    status = {
        "name": "c",
        "state": state_json(record.state),
        "lastState": state_json(record.last),
        "restartCount": 2,
    }
    assert recorded(status, now=NOW) == record
    waiting = {"name": "c", "state": state_json(Waiting("R", "m"))}
    assert recorded(waiting, now=NOW) == ContainerRecord("c", Waiting("R", "m"))


def test_container_that_ran_before_the_node_was_restarted_ended_unseen():
    status = {"name": "c", "state": state_json(Running(NOW, "id")), "restartCount": 1}
    record = recorded(status, now=NOW)
    assert isinstance(record.state, Terminated)
    assert (record.state.exit_code, record.state.reason, record.restarts) == (
        137,
        "ContainerStatusUnknown",
        1,
    )


def test_status_without_a_state_is_waiting():
    assert recorded({"name": "c"}, now=NOW).ever_ran is False
