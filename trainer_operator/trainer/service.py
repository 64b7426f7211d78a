"""The headless Service of a Trainer: a DNS name for each member, before it is ready and whichever pod it has.

`<trainer>-<role>-<index>.trainer-<trainer>.<namespace>.svc` is for people, sidecars and tools. What the operator hands
to frameworks are addresses of the membership epoch, never names (ME4): while an old pod is on its way out, the name of
its member has two addresses.

Pure. Owned by the Trainer, so it goes with it; its name is a function of the Trainer's (R1, TR24).
"""

from typing import Any

from trainer_operator.api import names
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import MemberId

AGENT_PORT = 29390


def service_name(trainer: Trainer) -> str:
    """Return the name of the Service; a Trainer's own name may begin with a digit, which a Service's may not."""
    return f"trainer-{trainer.metadata.name}"


def host_name(trainer: Trainer, member: MemberId) -> str:
    """Return the host name of a member: the same for each of its attempts."""
    return names.pod_name(trainer.metadata.name, member.role, member.index)


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
