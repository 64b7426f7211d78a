"""The audit trail in the simulated world: its place, its task, and what is recorded."""

from runtime.objects import CONFIGMAPS, ObjectKey
from trainer_operator.api.resources import AUDIT_LOGS
from trainer_operator.audit.writer import ANCHORS, NAMESPACE


class Recording:
    """The writer's task, one try a pass."""

    def __init__(self, audit):
        self.audit = audit

    async def reconcile(self, _request):
        await self.audit.flush()


def prepare(api):
    """Make what is installed with the operator."""
    api.log.put(CONFIGMAPS, {"metadata": {"name": ANCHORS, "namespace": NAMESPACE}})


def audit_trail(api):
    """Return the records, and how far the chains had come."""
    anchors = api.log.get(CONFIGMAPS, ObjectKey(NAMESPACE, ANCHORS)).get("data")
    return api.log.objects(AUDIT_LOGS), anchors
