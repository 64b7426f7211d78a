"""What all our kinds share: the base model, object metadata, conditions, and the scalar types of the wire.

Field descriptions are the docstrings below the fields (CR12): they are what `kubectl explain` shows, so they address
users. Models are values: frozen, changed with `model_copy(update=...)`. Unknown fields are ignored on reading, since
an older operator must live with a newer CRD; the API server reports them to users under strict validation.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trainer_operator.api.descriptions import descriptions
from trainer_operator.api.rules import VALIDATIONS, Rule, TransitionRule

GROUP = "trainer.operator.kubeflow.org"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
LABEL_PREFIX = f"{GROUP}/"

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


_THAWED: set[type] = set()
"""Models that are not frozen: statuses, which decisions change."""
_CONTAINERS: set[type] = {list, dict}


class ApiModel(BaseModel):
    """The base of every model: camelCase on the wire, snake_case in Python, frozen."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        defer_build=True,
        extra="ignore",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    transition_rules: ClassVar[tuple[TransitionRule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the CEL side of the model's rules, and what stands below its fields."""
        schema = handler(core_schema)
        own = handler.resolve_ref_schema(schema)
        described = descriptions(cls)
        for name, field in cls.model_fields.items():
            if name in described:
                own["properties"][field.alias or name]["description"] = described[name]
        rules = [rule.as_validation() for rule in cls.rules if rule.cel is not None]
        rules += [rule.as_validation() for rule in cls.transition_rules]
        if rules:
            own[VALIDATIONS] = rules
        return schema

    @classmethod
    def read(cls, obj: Any) -> Self:
        """Build the model from a JSON value of the API server.

        Raises: pydantic.ValidationError; `validation.read_errors` turns it into field errors.
        """
        return cls.model_validate(obj)

    def dump(self) -> dict[str, Any]:
        """Return the JSON value for the API server; what is None is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a copy to change, which shares what is frozen.

        Each decision starts with one, and pydantic's own, which copies every date and string, takes three times as long.
        """
        if type(self) not in _THAWED:
            return self
        copied = self.__copy__()
        fields = copied.__dict__
        for name, value in fields.items():
            if type(value) in _CONTAINERS:
                fields[name] = _copied(value)
        return copied

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Remember which models may be changed."""
        if not cls.model_config.get("frozen"):
            _THAWED.add(cls)
            _CONTAINERS.add(cls)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_copied(each) for each in value]
    if kind is dict:
        return {key: _copied(each) for key, each in value.items()}
    return value.__deepcopy__() if kind in _THAWED else value  # tuples hold frozen models only


class ListType:
    """Mark how a list merges: `map` by keys (which also makes items unique), `set`, or `atomic`."""

    def __init__(self, *keys: str, kind: str = "map") -> None:
        self.kind = kind
        self.keys = keys

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the Kubernetes list type to the schema of the list."""
        schema = handler(core_schema)
        schema["x-kubernetes-list-type"] = self.kind
        if self.keys:
            schema["x-kubernetes-list-map-keys"] = list(self.keys)
        return schema


def _as_utc(value: datetime) -> datetime:
    """Read a time without a zone as UTC, as the API server writes none other."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _format_time(value: datetime) -> str:
    """Write RFC 3339; fractions only where there are any (retry delays are shorter than a second)."""
    return value.isoformat(timespec="microseconds" if value.microsecond else "seconds").replace("+00:00", "Z")


Time = Annotated[
    datetime,
    AfterValidator(_as_utc),
    PlainSerializer(_format_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

Int32 = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True, json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(ge=0, le=INT64_MAX, strict=True, json_schema_extra={"format": "int64"})]

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

ObjectName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
"""The name of an object in the same namespace (TN1, TN2: never `namespace/name`)."""
LabelName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=DNS_LABEL)]
ShortText = Annotated[str, StringConstraints(max_length=256)]
Text = Annotated[str, StringConstraints(max_length=1024)]
LongText = Annotated[str, StringConstraints(max_length=32768)]
StringMap = Annotated[dict[str, ShortText], Field(max_length=64)]


class Role(StrEnum):
    """The part a member plays in training."""

    WORKER = "worker"
    PS = "ps"
    MASTER = "master"


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """One observation about the object, in the standard shape of Kubernetes."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """What is observed, for example Ready."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """One CamelCase word that programs may read."""
    message: LongText = ""
    """A sentence for people."""
    last_transition_time: Time
    """When the status last changed; a change of reason or message alone doesn't count."""
    observed_generation: Int64 | None = None
    """The generation of the spec that this observation is about."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=32), ListType("type")]


def condition_of(conditions: Iterable[Condition], type: str) -> Condition | None:
    """Return the condition of a type; None while there is none."""
    return next((condition for condition in conditions if condition.type == type), None)


class ObjectMeta(ApiModel):
    """The part of an object's metadata that we read. The API server owns its schema."""

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str = ""
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[dict[str, Any], ...] = ()  # JSON edge: foreign owners are carried, never read


class ApiObject(ApiModel):
    """A whole object: type, metadata; kinds add spec and status."""

    api_version: str = API_VERSION
    kind: str
    metadata: ObjectMeta = ObjectMeta()
