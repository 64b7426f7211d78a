"""Weights: which commit all members get, and whether they have it (HF1, HF3).

    revision ──first member's pod resolves it──▶ status.weights: repo, revision, commit ──▶ all other pods
    a commit ──────────────────────────────────▶ status.weights                         ──▶ all pods

The pin holds while a pod of the Trainer is there, whatever branch and spec do meanwhile, so that no two members have
different weights; an edit of the spec counts once all pods are gone. What the hub refuses is a failure of the pod, and
met by the budgets like any other; the condition WeightsVerified keeps why until the files of all members are right.
Pure.
"""

import re

from trainer_operator.api.meta import condition_of
from trainer_operator.api.status import Phase, WeightsStatus
from trainer_operator.api.trainer import HuggingFaceWeights, Trainer
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.membership import desired_members, live
from trainer_operator.trainer.views import PodView
from trainer_operator.trainer.weightfiles import wanted

CONDITION = "WeightsVerified"
_COMMIT = re.compile(r"[0-9a-f]{40}")


def follow(draft: Draft) -> None:
    """Pin the revision as soon as its commit is known, and say once that all members have the files."""
    weights = wanted(draft.observed.trainer)
    if weights is None:
        return
    status = draft.status
    kept = status.weights
    asks = (weights.repo, weights.revision)
    if kept is not None and (kept.repo, kept.revision) != asks and not any(draft.observed.pods.values()):
        status.weights = None
    if status.weights is None:
        _pin(draft, weights)
    if _told(draft) != "True":
        verdict = row(draft)
        if verdict is not None and verdict[1]:
            draft.event(CONDITION, verdict[3])


def holds_back(draft: Draft, member: MemberId) -> bool:
    """Whether a member waits until the pod of the first one has pinned the revision."""
    if wanted(draft.observed.trainer) is None or draft.status.weights is not None:
        return False
    return member != _first(draft.observed.trainer)


def row(draft: Draft) -> tuple[str, bool | None, str, str] | None:
    """Return the row of the condition; None without weights, and while the last word still holds."""
    weights, status = wanted(draft.observed.trainer), draft.status
    if weights is None:
        return None
    if status.phase is Phase.SUSPENDED:
        return CONDITION, None, str(status.phase), ""
    pods = _newest(draft)
    problem = next((pod for pod in pods.values() if pod.weights_problem), None)
    if problem is not None:
        reason, _, sentence = problem.weights_problem.partition(": ")
        return CONDITION, False, reason, f"pod {problem.name}: {sentence}"
    desired, pin = len(desired_members(draft.observed.trainer)), status.weights
    verified = sum(_has_files(draft, member, pod) for member, pod in pods.items())
    if pin is not None and verified == desired:
        return (
            CONDITION,
            True,
            "Verified",
            f"all members have {pin.repo} at commit {pin.commit}, hash by hash",
        )
    if _told(draft) == "False" or (_told(draft) == "True" and pin is not None):
        return None
    if pin is None:
        return CONDITION, None, "Pinning", f"the commit of {weights.repo} {weights.revision} is not known yet"
    return (
        CONDITION,
        None,
        "Fetching",
        f"{verified} of {desired} members have {pin.repo} at commit {pin.commit}",
    )


def _first(trainer: Trainer) -> MemberId:
    """Return the member that every Trainer of this shape has, in whatever size."""
    topology = trainer.spec.topology
    return MemberId("master" if topology.masters else "ps" if topology.parameter_servers else "worker", 0)


def _pin(draft: Draft, weights: HuggingFaceWeights) -> None:
    if _COMMIT.fullmatch(weights.revision):
        draft.status.weights = WeightsStatus(
            repo=weights.repo, revision=weights.revision, commit=weights.revision
        )
        return
    for pod in _newest(draft).values():
        repo, _, rest = pod.weights_pin.partition(" ")
        revision, _, commit = rest.partition(" ")
        if repo and revision and _COMMIT.fullmatch(commit):
            draft.status.weights = WeightsStatus(repo=repo, revision=revision, commit=commit)
            draft.event("WeightsPinned", f"{repo} {revision} is commit {commit}; all members get this one")
            return


def _newest(draft: Draft) -> dict[MemberId, PodView]:
    """Return each member's newest pod, in the order of the members; its attempt may be over already."""
    pods, desired = draft.observed.pods, desired_members(draft.observed.trainer)
    return {member: pods[member][-1] for member in sorted(desired) if pods.get(member)}


def _has_files(draft: Draft, member: MemberId, pod: PodView) -> bool:
    """Whether the init containers of a pod have ended well: it runs, or its agent was heard before its node said so."""
    runs = pod.phase in {"Running", "Succeeded"} or live(draft, member) is not None
    return runs and not pod.terminating


def _told(draft: Draft) -> str:
    """Return what the condition says so far."""
    told = condition_of(draft.status.conditions, CONDITION)
    return told.status if told is not None else ""
