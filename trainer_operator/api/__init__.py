"""The API of the operator: its kinds as pydantic models, their rules, and the CRDs made from them.

One module per noun. `trainer`, `profile` and `checkpoint` are the kinds; `validation` says what is wrong with an
object; `generate` writes `crds/`. Whoever changes a field regenerates them (`make generate`); fields are added, never
given a new meaning.
"""

from trainer_operator.api.checkpoint import Checkpoint, CheckpointSpec, CheckpointStatus
from trainer_operator.api.meta import API_VERSION, GROUP, VERSION, Condition, ObjectMeta, Role
from trainer_operator.api.profile import TrainingProfile, TrainingProfileSpec
from trainer_operator.api.trainer import Trainer, TrainerSpec, TrainerStatus

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "Checkpoint",
    "CheckpointSpec",
    "CheckpointStatus",
    "Condition",
    "ObjectMeta",
    "Role",
    "Trainer",
    "TrainerSpec",
    "TrainerStatus",
    "TrainingProfile",
    "TrainingProfileSpec",
]
