"""The headless Service of a Trainer: a DNS name for each member, before it is ready and whichever pod it has.

`<trainer>-<role>-<index>.trainer-<trainer>.<namespace>.svc` is for people, sidecars and tools. What the operator hands
to frameworks are addresses of the membership epoch, never names (ME4): while an old pod is on its way out, the name of
its member has two addresses.

It is made once all pods have an address, since Kubernetes writes both its lists of addresses anew for those that come
later. One that was deleted by hand comes back.

Pure. Owned by the Trainer, so it goes with it; its name is a function of the Trainer's (R1, TR24).
"""

from typing import Any

from trainer_operator.api import names
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import CreateService, Draft
from trainer_operator.trainer.membership import ACTIVE, desired_members

AGENT_PORT = 29390


def service_name(trainer: Trainer) -> str:
    """Return the name of the Service; a Trainer's own name may begin with a digit, which a Service's may not."""
    return f"trainer-{trainer.metadata.name}"


def host_name(trainer: Trainer, member: MemberId) -> str:
    """Return the host name of a member: the same for each of its attempts."""
    return names.pod_name(trainer.metadata.name, member.role, member.index)


def follow(draft: Draft) -> None:
    """Have the Service made when its list of addresses is complete, or when training runs without some."""
    if draft.observed.has_service:
        return
    trains = draft.status.membership.phase == ACTIVE
    if trains or all(_has_address(draft, member) for member in desired_members(draft.observed.trainer)):
        draft.actions.append(CreateService())


def _has_address(draft: Draft, member: MemberId) -> bool:
    pod = draft.observed.pod(member, draft.records.attempt(member))
    return pod is not None and pod.has_address


def service_manifest(trainer: Trainer, owner: dict[str, Any]) -> dict[str, Any]:
    """Build the Service. Members must find each other before any of them is ready."""
    labels = {names.TRAINER_LABEL: trainer.metadata.name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(trainer),
            "namespace": trainer.metadata.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": "agent", "port": AGENT_PORT}],
        },
    }
