"""What is wrong with an object, field by field: shape first, then the rules between fields, then the change.

The same rules are CEL in the CRD (CR3), so an object that the API server took passes here, and webhooks, the command
line and the reconciler agree with it. `validate` never raises on bad input, however malformed: it answers with errors
(TR30).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from trainer_operator.api.checkpoint import Checkpoint
from trainer_operator.api.meta import ApiModel, ApiObject
from trainer_operator.api.profile import TrainingProfile
from trainer_operator.api.rules import Rule
from trainer_operator.api.trainer import Trainer

KINDS: Mapping[str, type[ApiObject]] = {
    "Trainer": Trainer,
    "TrainingProfile": TrainingProfile,
    "Checkpoint": Checkpoint,
}

_SHOWN = 120
"""Characters of a refused value that an error repeats."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that is wrong: where, what was given, and what is allowed."""

    path: str
    value: Any  # JSON edge: whatever was given
    message: str

    def __str__(self) -> str:
        """Write one sentence, in the API server's style."""
        if self.value is None:
            return f"{self.path}: {self.message}"
        shown = repr(self.value)
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}…"
        return f"{self.path}: Invalid value: {shown}: {self.message}"


def validate(obj: object, old: object = None) -> list[FieldError]:
    """Return everything that is wrong with an object of one of our kinds, and with the change from `old`.

    Guarantees: no errors means that the model reads it and all rules hold. An unreadable `old` forbids no change.
    """
    if not isinstance(obj, Mapping):
        return [FieldError("", obj, "give a JSON object")]
    kind = obj.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        return [FieldError("kind", kind, f"give one of {', '.join(KINDS)}")]
    try:
        new = model.read(obj)
    except ValidationError as error:
        return read_errors(error)
    errors = rule_errors(new)
    if old is not None:
        try:
            before = model.read(old)
        except ValidationError:
            return errors
        errors += transition_errors(before, new)
    return errors


def read_errors(error: ValidationError) -> list[FieldError]:
    """Turn pydantic's errors into field errors with the paths of the wire."""
    found: dict[tuple[str, str], FieldError] = {}
    for item in error.errors(include_url=False, include_context=False):
        message = item["msg"].removeprefix("Value error, ")
        missing = item["type"] == "missing"
        path = _path_of(item["loc"])
        value = None if missing else item["input"]
        found.setdefault((path, message), FieldError(path, value, "required" if missing else message))
    return list(found.values())


def rule_errors(model: ApiModel) -> list[FieldError]:
    """Return the rules that a model breaks, in it and in everything below it."""
    return list(_broken_rules(model, ""))


def transition_errors(old: ApiModel, new: ApiModel) -> list[FieldError]:
    """Return the rules that the change from `old` to `new` breaks."""
    return list(_broken_transitions(old, new, ""))


def _path_of(location: Sequence[int | str]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":  # pydantic's mark for an error in a map's key
            path = _join(path, part)
    return path


def _join(path: str, name: str) -> str:
    if not name:
        return path
    return f"{path}.{name}" if path else name


def _broken_rules(model: ApiModel, path: str) -> Iterator[FieldError]:
    for rule in type(model).rules:
        if not rule.holds(model):
            yield FieldError(_join(path, rule.at), _value_at(model, rule.at), rule.message)
    for name, alias, rules in _fields(type(model)):
        value = getattr(model, name)
        if value is None:
            continue
        below = _join(path, alias)
        for rule in rules:
            if not rule.holds(value):
                yield FieldError(below, value, rule.message)
        if isinstance(value, ApiModel):
            yield from _broken_rules(value, below)
        elif isinstance(value, list | tuple):
            for position, item in enumerate(value):
                if isinstance(item, ApiModel):
                    yield from _broken_rules(item, f"{below}[{position}]")


def _broken_transitions(old: ApiModel, new: ApiModel, path: str) -> Iterator[FieldError]:
    for rule in type(new).transition_rules:
        if not rule.allows(old, new):
            yield FieldError(_join(path, rule.at), _value_at(new, rule.at), rule.message)
    for name, alias, _ in _fields(type(new)):
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, ApiModel) and isinstance(after, ApiModel):
            yield from _broken_transitions(before, after, _join(path, alias))


@cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, tuple[Rule, ...]], ...]:
    """Return name, wire name and own rules of each field."""
    return tuple(
        (
            name,
            field.alias or name,
            tuple(item for item in (*field.metadata, *_metadata(field.annotation)) if isinstance(item, Rule)),
        )
        for name, field in model.model_fields.items()
    )


def _metadata(annotation: Any) -> Iterator[Any]:
    """Walk the annotations inside optional types."""
    for part in get_args(annotation):
        yield from getattr(part, "__metadata__", ())
        if getattr(part, "__metadata__", None) is None:
            yield from _metadata(part)


def _value_at(model: ApiModel, path: str) -> Any:
    """Return the plain value at a path of wire names; None when there is no single value to show."""
    value: Any = model
    for part in path.split(".") if path else ():
        names = {alias: name for name, alias, _ in _fields(cast("type[ApiModel]", type(value)))}
        value = getattr(value, names[part])
    return None if isinstance(value, ApiModel) or value is model else value
