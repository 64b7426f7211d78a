"""A store that is damaged under a running Trainer: found, said, and an older checkpoint is used."""

from datetime import timedelta
from typing import NamedTuple

from runtime.clock import format_time, parse_time
from trainer_operator.api.checkpoint import VERIFY_ANNOTATION


def checkpoint(job, name):
    return job.world.get("checkpoint", name, "-n", job.namespace)["status"]


class Told(NamedTuple):
    """Why a checkpoint is not healthy."""

    reason: str
    message: str


def verify(job, until, name):
    """Have a corrupt checkpoint read in full, and return why it is."""
    before = parse_time(checkpoint(job, name)["lastVerified"])
    asked = (before + timedelta(seconds=2)).replace(microsecond=0)
    job.world.kubectl(
        "annotate",
        "checkpoint",
        name,
        "-n",
        job.namespace,
        f"{VERIFY_ANNOTATION}={format_time(asked)}",
        "--overwrite",
    )

    def read():
        status = checkpoint(job, name)
        is_read = status.get("verified") == "Full" and parse_time(status["lastVerified"]) >= asked
        return status if is_read else None

    status = until(read, 120, f"{name} verified", tell=lambda: checkpoint(job, name))
    assert (status["state"], status["health"]) == ("Committed", "Corrupt")
    (condition,) = [each for each in status["conditions"] if each["type"] == "Verified"]
    return Told(condition["reason"], condition["message"])


def test_damage_is_found_under_a_running_trainer_and_an_older_checkpoint_is_used(job, until):
    """KT3, PB1, PB2, PB4, CS6, RS2: a flipped byte, a removed object; health, Events, and where training goes on."""
    digits = job.digits(epochs=100000)
    until(lambda: digits.status().get("checkpointSequence", 0) >= 3, 120, "checkpoints", tell=digits.status)
    digits.patch({"checkpoint": {"intervalMinutes": 500}})
    until(lambda: not digits.status().get("checkpointInFlight"), 60, "no save", tell=digits.status)
    listed = digits.world.get("checkpoints", "-n", digits.namespace)["items"]
    committed = [each for each in listed if each["status"].get("state") == "Committed"]
    *_, good, second, newest = sorted(committed, key=lambda each: each["status"]["step"])

    flipped, removed = (max(chunks(digits, each)) for each in (newest, second))
    content = flipped.read_bytes()
    flipped.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    removed.unlink()
    found = {
        verify(digits, until, each["metadata"]["name"]): chunk
        for each, chunk in ((newest, flipped), (second, removed))
    }
    assert [told.reason for told in found] == ["Damaged", "ObjectMissing"]
    assert all(chunk.name in told.message for told, chunk in found.items())
    until(lambda: "CheckpointCorrupt" in digits.events(), 60, "an Event", tell=digits.events)

    epoch = digits.status()["membership"]["epoch"]
    digits.kill_process("worker", 0)
    until(lambda: digits.status()["membership"]["epoch"] > epoch, 60, "a new epoch", tell=digits.status)
    digits.wait_phase("Running", 90)
    assert digits.wait_trains_on(10)["membership"]["restoreStep"] == good["status"]["step"]


def chunks(job, obj):
    (folder,) = job.folder.glob(f"store-*/**/ckpt/{obj['status']['id']}/c0")
    return list(folder.glob("*/*"))
