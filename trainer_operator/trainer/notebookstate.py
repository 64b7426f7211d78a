"""What a Trainer tells of its notebook: condition NotebookReady, and an Event when that changes. Pure."""

from runtime.conditions import ConditionStatus, set_condition
from trainer_operator.api import names
from trainer_operator.api.meta import Condition, condition_of
from trainer_operator.api.status import AT_REST
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.notebook import PORT, TOKEN_KEY, env_fault, has_places

CONDITION = "NotebookReady"
PROBLEMS = frozenset({"VariableRefused", "Refused", "TokenMissing", "ImageUnavailable", "GatewayFails"})
"""Reasons of which an Event tells, since somebody has to do something."""
_UNSET = frozenset({"CreateContainerConfigError"})
_NO_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})


def follow(draft: Draft) -> None:
    """Set the condition where a notebook is asked for, or was."""
    told = condition_of(draft.status.conditions, CONDITION)
    if draft.observed.trainer.spec.notebook is None and told is None:
        return
    status, reason, message = _row(draft)
    entries, changed = set_condition(
        [condition.dump() for condition in draft.status.conditions],
        type=CONDITION,
        status=status,
        reason=reason,
        message=message[:1024],
        generation=draft.observed.trainer.metadata.generation,
        now=draft.observed.now,
    )
    if not changed:
        return
    draft.status.conditions = tuple(Condition.read(entry) for entry in entries)
    if told is not None and (told.status, told.reason) == (status, reason):
        return
    if status == "True":
        draft.event(CONDITION, message)
    elif reason in PROBLEMS:
        draft.event(f"Notebook{reason}", message, warning=True)


def _row(draft: Draft) -> tuple[ConditionStatus, str, str]:
    trainer, phase, pod = draft.observed.trainer, draft.status.phase, draft.observed.notebook
    name, asked = trainer.metadata.name, trainer.spec.notebook
    if asked is None:
        return "False", "NotConfigured", ""
    if phase in AT_REST or trainer.spec.suspend:
        return "False", str(phase) if phase in AT_REST else "Suspended", ""
    fault = env_fault(trainer)
    if fault:
        return "False", "VariableRefused", fault
    if draft.observed.notebook_refusal:
        return "False", "Refused", draft.observed.notebook_refusal
    if pod is None:
        return "False", "Creating" if has_places(trainer) else "WaitsForTraining", ""
    if pod.ready:
        open_it = f"`kubectl trainer notebook {name}` opens it"
        return "True", "Serving", f"pod {pod.name} serves a Jupyter Kernel Gateway at port {PORT}; {open_it}"
    if pod.waits in _UNSET:
        secret = f"Secret {names.notebook_name(name)} with key {TOKEN_KEY}"
        remedy = f"`kubectl trainer notebook {name}` makes it (kubelet says: {pod.waits_message})"
        return "False", "TokenMissing", f"pod {pod.name} waits for {secret}: {remedy}"
    image = asked.image or trainer.spec.image
    if pod.waits in _NO_IMAGE:
        return "False", "ImageUnavailable", f"pod {pod.name} cannot get image {image}: {pod.waits}"
    if pod.failed:
        words = pod.last_words or "it said nothing; see its log"
        return "False", "GatewayFails", f"the gateway in pod {pod.name} ended: {words}"
    return "False", "Starting", ""
