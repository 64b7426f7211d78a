"""How fast training goes and when it will be done: `status.progress`.

A step's duration comes from the members' beats; how many steps an epoch has is learnt when one ends, so before that
neither a percentage nor an end is guessed. Nothing changes while the global step stands still, so an idle Trainer costs
no write (ST7). Pure.
"""

from datetime import timedelta
from statistics import median

from trainer_operator.api.status import Phase, ProgressStatus
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.membership import live, members_of

LONGEST = 10 * 365 * 86400.0
"""Seconds; an end that is further away is not told, since it is only noise."""

SHORTEST = 0.001
"""Milliseconds; what claims to be shorter is no step (beats are untrusted)."""


def follow(draft: Draft) -> None:
    """Bring `status.progress` up to the status' step and epochs."""
    status, before = draft.status, draft.observed.trainer.status
    progress = status.progress
    if status.phase is Phase.SUCCEEDED:
        if before.phase is not Phase.SUCCEEDED and (progress is not None or status.global_step):
            steps = progress.steps_per_epoch if progress is not None else None
            status.progress = ProgressStatus(percent=100.0, steps_per_epoch=steps)
        return
    if status.phase in {Phase.SUSPENDED, Phase.FAILED}:
        if progress is not None:
            progress.steps_per_second = progress.estimated_completion_time = None
        return
    if status.epochs_completed > before.epochs_completed and status.global_step:
        progress = status.progress = progress or ProgressStatus()
        progress.steps_per_epoch = status.global_step / status.epochs_completed
    if status.global_step == before.global_step:
        return
    duration = _step_seconds(draft)
    progress = status.progress = progress or ProgressStatus()
    progress.steps_per_second = float(f"{1 / duration:.3g}") if duration else None
    progress.percent = progress.estimated_completion_time = None
    if not progress.steps_per_epoch:
        return
    total = progress.steps_per_epoch * draft.observed.trainer.spec.epochs
    progress.percent = round(min(99.9, 100 * status.global_step / total), 1)
    left = max(0.0, total - status.global_step) * duration if duration else None
    if left is not None and left < LONGEST:
        end = draft.observed.now + timedelta(seconds=left)
        progress.estimated_completion_time = end.replace(microsecond=0)


def _step_seconds(draft: Draft) -> float | None:
    """Return the usual duration of a step, of those that the members of the epoch did last."""
    durations = [
        value / 1000
        for member in members_of(draft)
        if member.role != "ps" and (agent := live(draft, member)) is not None
        for value in agent.beat.dt_ms
        if value >= SHORTEST
    ]
    return median(durations) if durations else None
