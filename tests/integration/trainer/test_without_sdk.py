"""Training code that knows nothing of us, on a real API server with real processes (AG5)."""

import os
import signal
from pathlib import Path

from trainer_operator.demo.processes import training_processes

PRINTS = """
import pathlib, sys, time
for step in range(1, 100000):
    print("step", step, "loss 0.5", flush=True)
    time.sleep(0.05)
    if pathlib.Path(sys.argv[1]).exists():
        break
"""
WRITES = """
import os, pathlib, sys, time
for step in range(1, 100000):
    pathlib.Path(os.environ["TRAINER_PROGRESS_FILE"]).write_text(str(step))
    time.sleep(0.05)
    if pathlib.Path(sys.argv[1]).exists():
        break
"""


def plain(job, program, **spec):
    store = job.folder / f"store-{job.namespace}"
    store.mkdir(exist_ok=True)
    return job.make(
        "plain",
        command=["python3", "-c", program, str(job.folder / "enough")],
        topology={"workers": 2},
        checkpoint={"bucket": f"file://{store}", "intervalMinutes": 0.05},
        **spec,
    )


def condition(trainer, name):
    return next(each for each in trainer.status()["conditions"] if each["type"] == name)


def processes(trainer):
    return training_processes(trainer.object()["metadata"]["uid"], proc=Path("/proc"))


def test_code_that_prints_its_steps_is_followed_restarted_and_ends_by_its_exit_code(job, until):
    """AG5, FT01, ST6, CS10: its steps are the Trainer's, the condition says that nothing is saved and what to do."""
    trainer = plain(job, PRINTS)
    trainer.wait_step(100)
    trainer.wait_phase("Running")
    told = until(
        lambda: (found := condition(trainer, "CheckpointHealthy"))["reason"] == "CodeWithoutSDK" and found, 30
    )
    assert told["status"] == "False"
    assert "nothing is saved" in told["message"]
    assert "trainer_sdk.init()" in told["message"]
    before = processes(trainer)
    os.kill(before["worker-1"][0], signal.SIGKILL)
    until(
        lambda: (
            (now := processes(trainer)).keys() == before.keys()
            and not set(now.values()) & set(before.values())
        ),
        60,
        "new processes of both members",
    )
    status = until(
        lambda: (
            (found := trainer.status())["membership"]["epoch"] == 2
            and found.get("globalStep", 0) > 20
            and found
        ),
        60,
        "steps of the new processes",
        tell=trainer.status,
    )
    assert (status["failures"], status["restarts"]) == (1, 1)
    assert status["lastRollback"]["to"] == status["membership"]["restoreStep"] == 0
    job.folder.joinpath("enough").touch()
    status = trainer.wait_phase("Succeeded", 60)
    assert not status.get("lastCheckpoint")
    assert "StallDetected" not in trainer.events()


def test_code_may_write_its_step_to_a_file_instead(job):
    """AG5, RC7: an exit by zero is success, whatever was told of steps."""
    trainer = plain(job, WRITES)
    trainer.wait_step(100)
    trainer.wait_phase("Running")
    job.folder.joinpath("enough").touch()
    assert trainer.wait_phase("Succeeded", 60)["globalStep"] >= 100
