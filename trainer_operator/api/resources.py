"""Where the API server serves our kinds."""

from runtime.objects import Resource
from trainer_operator.api.meta import GROUP, VERSION

TRAINERS = Resource(GROUP, VERSION, "trainers", "Trainer")
TRAINING_PROFILES = Resource(GROUP, VERSION, "trainingprofiles", "TrainingProfile")
CHECKPOINTS = Resource(GROUP, VERSION, "checkpoints", "Checkpoint")
AUDIT_LOGS = Resource(GROUP, VERSION, "auditlogs", "AuditLog")
