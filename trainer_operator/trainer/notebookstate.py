"""What a Trainer tells of its notebook: condition NotebookReady, and an Event when that changes. Pure."""

from trainer_operator.api import names
from trainer_operator.api.meta import ConditionStatus, condition_of
from trainer_operator.api.status import AT_REST
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.notebook import PORT, TOKEN_KEY, env_fault, has_places

CONDITION = "NotebookReady"
PROBLEMS = frozenset({"VariableRefused", "Refused", "TokenMissing", "ImageUnavailable", "GatewayFails"})
"""Reasons of which an Event tells, since somebody has to do something."""
_UNSET = frozenset({"CreateContainerConfigError"})
_NO_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})


def row(draft: Draft) -> tuple[str, bool | None, str, str] | None:
    """Return the row of condition NotebookReady; None where no notebook is asked for, nor ever was."""
    told = condition_of(draft.status.conditions, CONDITION)
    if draft.observed.trainer.spec.notebook is None and told is None:
        return None
    is_ready, reason, message = _state(draft)
    return (CONDITION, is_ready, reason, message[:1024])


def follow(draft: Draft) -> None:
    """Record an Event when the condition changes to something that users act upon."""
    now, before = (
        condition_of(status.conditions, CONDITION) for status in (draft.status, draft.observed.trainer.status)
    )
    if now is None or (before is not None and (before.status, before.reason) == (now.status, now.reason)):
        return
    if now.status is ConditionStatus.TRUE:
        draft.event(CONDITION, now.message)
    elif now.reason in PROBLEMS:
        draft.event(f"Notebook{now.reason}", now.message, warning=True)


def _state(draft: Draft) -> tuple[bool, str, str]:
    trainer, phase, pod = draft.observed.trainer, draft.status.phase, draft.observed.notebook
    name, asked = trainer.metadata.name, trainer.spec.notebook
    if asked is None:
        return False, "NotConfigured", ""
    if phase in AT_REST or trainer.spec.suspend:
        return False, str(phase) if phase in AT_REST else "Suspended", ""
    fault = env_fault(trainer)
    if fault:
        return False, "VariableRefused", fault
    if draft.observed.notebook_refusal:
        return False, "Refused", draft.observed.notebook_refusal
    if pod is None:
        return False, "Creating" if has_places(trainer) else "WaitsForTraining", ""
    if pod.ready:
        open_it = f"`kubectl trainer notebook {name}` opens it"
        return True, "Serving", f"pod {pod.name} serves a Jupyter Kernel Gateway at port {PORT}; {open_it}"
    if pod.waits in _UNSET:
        secret = f"Secret {names.notebook_name(name)} with key {TOKEN_KEY}"
        remedy = f"`kubectl trainer notebook {name}` makes it (kubelet says: {pod.waits_message})"
        return False, "TokenMissing", f"pod {pod.name} waits for {secret}: {remedy}"
    image = asked.image or trainer.spec.image
    if pod.waits in _NO_IMAGE:
        return False, "ImageUnavailable", f"pod {pod.name} cannot get image {image}: {pod.waits}"
    if pod.failed:
        words = pod.last_words or "it said nothing; see its log"
        return False, "GatewayFails", f"the gateway in pod {pod.name} ended: {words}"
    return False, "Starting", ""
