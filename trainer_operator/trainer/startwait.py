"""Members whose start waits for the store (RS2): nothing was lost, so they wait, but not in silence. Pure."""

from trainer_operator.api.checkpoint import STORE_PROBLEMS
from trainer_operator.api.meta import condition_of
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.membership import ACTIVE, live, members_of

WAITING = "the start waits for the store: "


def problem(draft: Draft) -> tuple[str, str] | None:
    """Return why members wait, as a reason and a sentence; the first member's reason stands for all."""
    if draft.status.membership.phase != ACTIVE:
        return None
    for member in sorted(members_of(draft)):
        agent = live(draft, member)
        if agent is not None and agent.beat.waits and not agent.running:
            word, _, sentence = agent.beat.waits.partition(": ")
            reason = word if word in STORE_PROBLEMS else "StoreFails"
            return reason, f"{WAITING}{sentence or word}"[:512]
    return None


def follow(draft: Draft) -> None:
    """Say so once, in an Event; how it goes on, the condition CheckpointHealthy says."""
    found = problem(draft)
    told = condition_of(draft.status.conditions, "CheckpointHealthy")
    if found is not None and (told is None or not told.message.startswith(WAITING)):
        draft.event("StartWaitsForStore", f"{found[0]}: {found[1]}; it is tried again", warning=True)
