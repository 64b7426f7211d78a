"""How a Trainer ends, on a real API server with real processes: by success, by failure, by its deadline."""

import time
from datetime import datetime

from trainer_operator.demo.processes import training_processes

WORKER_0_FIRST = """
import os, pathlib, sys, time
mark = pathlib.Path(sys.argv[1])
if os.environ["TRAINER_INDEX"] == "0":
    mark.with_name("first").touch()
else:
    while not mark.exists():
        time.sleep(0.05)
"""


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def runs(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def make(job, program, *arguments, workers=2, **spec):
    return job.make(
        "ends", command=["python3", "-c", program, *arguments], topology={"workers": workers}, **spec
    )


def test_a_member_that_is_done_early_waits_for_the_others(job, until):
    """FT04, TR08, AG7, ME9: its success is neither the Trainer's nor a loss."""
    mark = job.folder / "last"
    trainer = make(job, WORKER_0_FIRST, str(mark))
    until((job.folder / "first").exists, 60, "the first member's end")
    uid = trainer.object()["metadata"]["uid"]
    until(
        lambda: training_processes(uid).keys() == {"worker-1"},
        60,
        "the end of the first",
        tell=trainer.status,
    )
    time.sleep(5)  # some beats: nothing may follow
    status = trainer.status()
    assert status["phase"] not in {"Succeeded", "Failed", "Recovering"}
    assert set(trainer.pods()) == {"ends-worker-0", "ends-worker-1"}
    mark.touch()
    status = trainer.wait_phase("Succeeded", 60)
    assert (status["failures"], status["restarts"], status["disruptions"]) == (0, 0, 0)


def test_a_deadline_ends_a_trainer_in_which_nothing_happens(job, until):
    """TR03, TR14: in time, without an event; its pods go, its record stays until it may go."""
    trainer = make(job, "import time; time.sleep(600)", activeDeadlineSeconds=10, ttlSecondsAfterFinished=15)
    until(lambda: trainer.phase() == "Failed", 60, "the deadline", tell=trainer.status)
    status = trainer.status()
    assert status["reason"] == "DeadlineExceeded"
    assert 9 <= seconds(status["completionTime"]) - seconds(status["startTime"]) <= 25
    until(
        lambda: not any(runs(pod) for pod in trainer.pods().values()),
        30,
        "no pod runs",
    )
    assert trainer.phase() == "Failed"
    until(
        lambda: not job.world.kubectl("get", "trainer", "ends", "-n", job.namespace, "--ignore-not-found"),
        60,
        "its record is gone",
    )


def test_a_failure_for_good_is_told_once(job, until):
    """TR02, RC7: with its time, and without a restart before or after."""
    trainer = make(job, "raise SystemExit(1)", workers=1, retryPolicy={"restartPolicy": "Never"})
    until(lambda: trainer.phase() == "Failed", 60, "Failed", tell=trainer.status)
    status = trainer.status()
    assert status["completionTime"]
    assert (status["failures"], status["restarts"]) == (1, 0)
    time.sleep(3)  # nothing may follow
    later = trainer.status()
    assert (later["failures"], later["restarts"], later["completionTime"]) == (1, 0, status["completionTime"])


def test_a_chief_that_is_done_releases_the_others(job, until):
    """TR08, TR09: workers that still run hold no machine any more."""
    trainer = make(job, WORKER_0_FIRST, str(job.folder / "never"), successPolicy="Chief")
    trainer.wait_phase("Succeeded", 60)
    until(lambda: not any(runs(pod) for pod in trainer.pods().values()), 30, "no pod runs")
    assert trainer.status()["failures"] == 0


def test_deleted_pods_use_up_no_limit_of_failures_but_their_own(job, until):
    """FT18, TR11, RC3: each is replaced; the one too many ends it with a reason of its own."""
    policy = {"backoffLimit": 0, "maxDisruptions": 2}
    trainer = make(job, "import time; time.sleep(600)", workers=1, retryPolicy=policy)
    for number in range(3):
        name = "ends-worker-0" + (f"-a{number}" if number else "")
        until(lambda name=name: runs(trainer.pods().get(name)), 60, f"{name} runs", tell=trainer.status)
        until(
            lambda number=number: (
                (now := trainer.status()["membership"])["phase"] == "Active" and now["epoch"] == number + 1
            ),
            60,
            "its epoch",
            tell=trainer.status,
        )
        job.world.kubectl("delete", "pod", name, "-n", job.namespace, "--wait=false")
        until(
            lambda number=number: trainer.status()["disruptions"] == number + 1,
            60,
            "its count",
            tell=trainer.status,
        )
    status = until(lambda: (s := trainer.status())["phase"] == "Failed" and s, 60, tell=trainer.status)
    assert (status["reason"], status["failures"], status["disruptions"]) == ("MaxDisruptionsExceeded", 0, 3)
