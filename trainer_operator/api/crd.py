"""The CustomResourceDefinitions: schemas, subresources, print columns and names put together (CR6, CR8, CR9, CR12)."""

from dataclasses import dataclass
from typing import Any, cast

from trainer_operator.api.auditlog import AuditLog
from trainer_operator.api.checkpoint import Checkpoint
from trainer_operator.api.meta import GROUP, VERSION, ApiModel, ApiObject
from trainer_operator.api.profile import TrainingProfile
from trainer_operator.api.schema import VALIDATIONS, Schema, structural_schema
from trainer_operator.api.trainer import Trainer

GENERATOR_ANNOTATION = f"{GROUP}/generator"
GENERATOR_VERSION = "1"
"""Raised when the generator writes the same models differently; a timestamp would make every run a change."""
CATEGORY = "kubeflow-training"

_STRING, _INTEGER = "string", "integer"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; it reads one path. Wide ones appear with `-o wide` only."""

    name: str
    path: str
    type: str = _STRING
    description: str = ""
    wide: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the item for `additionalPrinterColumns`."""
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        if self.wide:
            column["priority"] = 1
        return column


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind's CRD says beyond its schema."""

    model: type[ApiObject]
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    scale: dict[str, str] | None = None
    selectable: tuple[str, ...] = ()
    """Paths that field selectors may name."""

    @property
    def has_status(self) -> bool:
        """Whether something is observed of it."""
        return "status" in self.model.model_fields

    @property
    def name(self) -> str:
        """Return the kind, as written in manifests."""
        return self.model.__name__

    @property
    def file_name(self) -> str:
        """Return the name of the generated file."""
        return f"{GROUP}_{self.plural}.yaml"


AGE = Column("Age", ".metadata.creationTimestamp", "date")

KINDS = (
    Kind(
        Trainer,
        plural="trainers",
        short_name="trn",
        columns=(
            Column("Phase", ".status.phase", description="What the Trainer does at the moment"),
            Column("Step", ".status.globalStep", _INTEGER, "Training steps finished"),
            Column("Epoch", ".status.epochsCompleted", _INTEGER, "Passes over the data finished"),
            Column("Workers", ".status.readyWorkers", description="Workers ready and desired"),
            Column("Restarts", ".status.restarts", _INTEGER, "Restarts of any cause"),
            Column(
                "Checkpoint",
                ".status.lastCheckpoint.step",
                _INTEGER,
                "Step of the newest committed checkpoint",
            ),
            Column(
                "PS", ".status.readyServers", description="Parameter servers ready and desired", wide=True
            ),
            Column("Profile", ".spec.profile", description="TrainingProfile in use", wide=True),
            Column("Nodes", ".status.nodes", _INTEGER, "Nodes that run members", wide=True),
            AGE,
        ),
        scale={
            "specReplicasPath": ".spec.topology.workers",
            "statusReplicasPath": ".status.workers",
            "labelSelectorPath": ".status.selector",
        },
    ),
    Kind(
        TrainingProfile,
        plural="trainingprofiles",
        short_name="trnp",
        columns=(
            Column("Retries", ".spec.retryPolicy.backoffLimit", _INTEGER, "Failures that are retried"),
            Column("Restart", ".spec.retryPolicy.restartPolicy", description="Which exits are retried"),
            AGE,
        ),
    ),
    Kind(
        Checkpoint,
        plural="checkpoints",
        short_name="trnc",
        columns=(
            Column("Trainer", ".spec.trainerRef.name", description="Trainer whose state is saved"),
            Column("State", ".status.state", description="How far it is"),
            Column("Step", ".status.step", _INTEGER, "Global step that was saved"),
            Column("Size", ".status.size", description="Size of all copies"),
            Column("Copies", ".status.copies", _INTEGER, "Durable copies of the least copied shard"),
            Column("Health", ".status.health", description="What verification last said"),
            AGE,
        ),
    ),
    Kind(
        AuditLog,
        plural="auditlogs",
        short_name="trna",
        columns=(
            Column("Action", ".spec.action", description="What was done"),
            Column("Namespace", ".spec.objectRef.namespace", description="Namespace of the object"),
            Column("Object", ".spec.objectRef.name", description="Object that it is about"),
            Column("Time", ".spec.time", "date", description="When it was decided"),
        ),
        selectable=(".spec.objectRef.namespace",),
    ),
)


def custom_resource_definition(kind: Kind) -> dict[str, Any]:
    """Return the CRD of a kind."""
    singular = kind.name.lower()
    subresources: dict[str, Any] = {"status": {}} if kind.has_status else {}
    if kind.scale is not None:
        subresources["scale"] = dict(kind.scale)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "annotations": {GENERATOR_ANNOTATION: GENERATOR_VERSION},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": singular,
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": object_schema(kind.model)},
                    "subresources": subresources,
                    "additionalPrinterColumns": [column.as_json() for column in kind.columns],
                    **(
                        {"selectableFields": [{"jsonPath": path} for path in kind.selectable]}
                        if kind.selectable
                        else {}
                    ),
                }
            ],
        },
    }


def object_schema(model: type[ApiObject]) -> Schema:
    """Return the schema of a whole object; metadata is the API server's own."""
    raw = model.model_json_schema(by_alias=True)
    schema: Schema = {
        "type": "object",
        "description": " ".join(raw["description"].split()),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Group and version of this kind."},
            "kind": {"type": "string", "description": "Name of this kind."},
            "metadata": {"type": "object"},
        },
    }
    for name in ("spec", "status"):
        if name not in model.model_fields:
            continue
        part = cast("type[ApiModel]", model.model_fields[name].annotation)
        translated = structural_schema(part, observed=name == "status")
        translated["description"] = raw["properties"][name]["description"]
        schema["properties"][name] = translated
    if VALIDATIONS in raw:
        schema[VALIDATIONS] = raw[VALIDATIONS]
    return schema
