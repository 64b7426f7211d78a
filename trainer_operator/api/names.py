"""Names and labels that are derived from a Trainer (CR5, TR24, TR29, EC1).

A name is a function of (Trainer, role, index, attempt), so a repeated create finds its own earlier one. Everything
derived must fit the 63 characters of a label and of a host name; `longest_name` is what admission measures.
"""

import re

from trainer_operator.api.meta import DNS_LABEL, LABEL_PREFIX, Role

MAX_NAME = 63
MAX_ATTEMPT = 9999

TRAINER_LABEL = "trainer-name"
ROLE_LABEL = f"{LABEL_PREFIX}role"
INDEX_LABEL = f"{LABEL_PREFIX}index"
ATTEMPT_LABEL = f"{LABEL_PREFIX}attempt"
EPOCH_LABEL = f"{LABEL_PREFIX}epoch"
PLACEMENT_LABEL = f"{LABEL_PREFIX}placement"
"""The pods that the scheduler keeps together have the same value of it."""
JANITOR_ROLE = "janitor"
"""Role of the pod that does the store's work while no member runs; it is no member."""
NOTEBOOK_ROLE = "notebook"
"""Role of the pod that serves notebooks; it is no member either."""

IMPORT_ANNOTATION = f"{LABEL_PREFIX}import"
"""On a Trainer at rest: its Checkpoint objects are rebuilt from the store. Then it goes, or says why that failed."""
IMPORT_FAILED = "failed: "
"""How the annotation begins then."""

RESTORE_ANNOTATION = f"{LABEL_PREFIX}restore-from"
"""On a Trainer: the next epoch starts from the Checkpoint of that name; a time after "@" makes it another request."""
_RESTORE_PIN = re.compile(r"restore/(\d{1,18})(?:\.(\d{1,18}))?")
_LABEL = re.compile(DNS_LABEL)


def pod_name(trainer: str, role: str, index: int, attempt: int = 0) -> str:
    """Name the pod of a member; attempt 0 is the first and has no suffix (ME4)."""
    name = f"{trainer}-{role}-{index}"
    return f"{name}-a{attempt}" if attempt else name


def notebook_name(trainer: str, number: int = 0) -> str:
    """Name the pod that serves notebooks, and without a number the Secret with its token."""
    return f"{trainer}-{NOTEBOOK_ROLE}-{number}" if number else f"{trainer}-{NOTEBOOK_ROLE}"


def claim_name(trainer: str, role: str, index: int, attempt: int = 0) -> str:
    """Name the volume claim of a member, or of one attempt where each has its own (ND3)."""
    return pod_name(trainer, role, index, attempt)


def checkpoint_name(trainer: str, checkpoint_id: str) -> str:
    """Name the Checkpoint object of a checkpoint in the store."""
    return f"{trainer}-{checkpoint_id}"


def restore_pin(epoch: int, ps_epoch: int = 0) -> str:
    """Name the pin on what a membership epoch starts from; with servers it is that of a parameter-server epoch (RS4)."""
    return f"restore/{epoch}.{ps_epoch}" if ps_epoch else f"restore/{epoch}"


def restoring_epoch(pin: str) -> tuple[int, int] | None:
    """Return the epoch and parameter-server epoch that a pin names; None when it is no restore's."""
    found = _RESTORE_PIN.fullmatch(pin)
    return (int(found[1]), int(found[2] or 0)) if found is not None else None


def pod_labels(trainer: str, role: str, index: int, attempt: int = 0, *, epoch: int = 0) -> dict[str, str]:
    """Return the labels of a member's pod; `epoch` is the membership epoch that it was made for."""
    return {
        TRAINER_LABEL: trainer,
        ROLE_LABEL: str(role),
        INDEX_LABEL: str(index),
        ATTEMPT_LABEL: str(attempt),
        EPOCH_LABEL: str(epoch),
    }


def trainer_selector(trainer: str) -> str:
    """Select every pod of the Trainer."""
    return f"{TRAINER_LABEL}={trainer}"


def worker_selector(trainer: str) -> str:
    """Select exactly its worker pods, as the scale subresource promises to autoscalers (CR6, EC2)."""
    return f"{TRAINER_LABEL}={trainer},{ROLE_LABEL}={Role.WORKER}"


def longest_name(trainer: str, *, workers: int, servers: int, masters: int) -> str:
    """Return the longest pod name that these counts may lead to, at the largest attempt.

    `workers` is the most there may ever be; `servers` counts standbys too. Ties keep the order worker, ps, master.
    """
    counts = ((Role.WORKER, workers), (Role.PS, servers), (Role.MASTER, masters))
    names = [pod_name(trainer, role, count - 1, MAX_ATTEMPT) for role, count in counts if count > 0]
    return max(names, key=len, default=trainer)


def is_trainer_name(name: str) -> bool:
    """Tell whether a name can be part of host names: a DNS label, so without dots."""
    return len(name) <= MAX_NAME and "\n" not in name and _LABEL.match(name) is not None
