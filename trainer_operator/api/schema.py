r"""From pydantic's JSON schema to the structural schema that a CRD needs (CR1, and the table in front of it).

The API server refuses much of what pydantic emits, and a lenient apply drops some of it silently. So this is a closed
translation: what it doesn't know is an error at generation time with the path of the field, never passed through.

| pydantic                        | here                                                     |
|---------------------------------|----------------------------------------------------------|
| `$defs` and `$ref`              | inlined; a recursive model is an error                   |
| `X \| None`, default null        | X, without the default                                   |
| `int \| str`                     | `x-kubernetes-int-or-string`                             |
| one-value `Literal`             | `enum` of one                                            |
| bounds beyond 2**53             | dropped: `format` says the same, and floats don't hold   |
| fractional bounds               | error: cut to an integer where the value is one          |
| exclusive bounds                | shifted for integers, boolean form for floats            |
| `additionalProperties: false`   | dropped: pruning and strict validation do that           |
| set                             | `x-kubernetes-list-type: set`                            |
| default model                   | `{}`, if the members' own defaults say the same          |
| titles, examples, propertyNames | dropped                                                  |
| tuple of types, Any, unions     | error                                                    |
| unbounded list, map or string   | error: CEL's cost estimate needs bounds                  |
| integer without format          | error                                                    |
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]  # JSON edge: a JSON schema is free-form

INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
VALIDATIONS = "x-kubernetes-validations"

_DROPPED = frozenset({"title", "examples", "propertyNames", "$defs", "uniqueItems", "const"})
_COPIED = frozenset(
    {
        "type",
        "format",
        "enum",
        "description",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "multipleOf",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "required",
        INT_OR_STRING,
        PRESERVE,
        LIST_TYPE,
        LIST_KEYS,
        VALIDATIONS,
    }
)
_HANDLED = frozenset(
    {
        "properties",
        "items",
        "additionalProperties",
        "default",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "anyOf",
    }
)


_EXACT = 2**53
"""Integers beyond this have no exact float64."""


class NotStructural(TypeError):
    """A model has no structural schema; the message names the field and the way out."""


def structural_schema(model: type[BaseModel], *, observed: bool = False) -> Schema:
    """Return the structural schema of a model.

    An `observed` part is written by the operator alone: it gets no defaults, since absent is not zero (TR32), and no
    rules, since they were held where the content came from.
    Raises: NotStructural.
    """
    root = model.model_json_schema(by_alias=True, mode="validation")
    return translate(root, root.get("$defs", {}), path=model.__name__, observed=observed)


def translate(
    node: Mapping[str, Any],
    definitions: Mapping[str, Any],
    *,
    path: str,
    observed: bool = False,
    within: tuple[str, ...] = (),
) -> Schema:
    """Translate one node; `within` holds the references that led here."""
    schema, within = _resolved(dict(node), definitions, path=path, within=within)
    schema = _without_null(schema)
    if "anyOf" in schema:
        schema, within = _united(schema, definitions, path=path, within=within)
    unknown = schema.keys() - _DROPPED - _COPIED - _HANDLED
    if unknown:
        msg = f"{path}: {', '.join(sorted(unknown))} can't be written in a structural schema"
        raise NotStructural(msg)

    result: Schema = {key: value for key, value in schema.items() if key in _COPIED}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if observed:
        result.pop(VALIDATIONS, None)
    _translate_bounds(schema, result, path=path)
    if not (result.get("type") or result.get(INT_OR_STRING) or result.get(PRESERVE)):
        msg = f"{path}: the type is open; give one, or mark the field {PRESERVE}"
        raise NotStructural(msg)
    if result.get("type") == "object":
        _translate_object(schema, result, definitions, path=path, observed=observed, within=within)
    elif result.get("type") == "array":
        _translate_array(schema, result, definitions, path=path, observed=observed, within=within)
    _check_bounds(result, path=path)
    if not observed and schema.get("default") is not None:
        result["default"] = _default(schema["default"], result, path=path)
    return result


def _resolved(
    schema: Schema, definitions: Mapping[str, Any], *, path: str, within: tuple[str, ...]
) -> tuple[Schema, tuple[str, ...]]:
    """Follow references; what stands beside a reference wins over what it refers to."""
    while "$ref" in schema:
        name = schema.pop("$ref").rpartition("/")[2]
        if name in within:
            msg = f"{path}: {name} contains itself; a CRD can't describe recursion"
            raise NotStructural(msg)
        schema = {**definitions[name], **schema}
        within = (*within, name)
    return schema, within


def _without_null(schema: Schema) -> Schema:
    """Drop the null branch of an optional field; the field may be absent instead."""
    branches = schema.get("anyOf")
    if branches is None:
        return schema
    return {**schema, "anyOf": [branch for branch in branches if branch.get("type") != "null"]}


def _united(
    schema: Schema, definitions: Mapping[str, Any], *, path: str, within: tuple[str, ...]
) -> tuple[Schema, tuple[str, ...]]:
    """Resolve what is left of a union: one branch, or a number that may be text."""
    branches = schema.pop("anyOf")
    if len(branches) == 1:
        branch, within = _resolved(dict(branches[0]), definitions, path=path, within=within)
        merged = _without_null({**branch, **schema})
        return (
            _united(merged, definitions, path=path, within=within) if "anyOf" in merged else (merged, within)
        )
    if [branch.get("type") for branch in branches] == ["integer", "string"]:
        return {**schema, INT_OR_STRING: True}, within
    msg = f"{path}: a union isn't structural; use optional fields and a rule 'exactly one of'"
    raise NotStructural(msg)


def _translate_bounds(schema: Schema, result: Schema, *, path: str) -> None:
    """Write bounds that the API server keeps and compares as they are meant."""
    for exclusive, inclusive, step in (
        ("exclusiveMinimum", "minimum", 1),
        ("exclusiveMaximum", "maximum", -1),
    ):
        strict = schema.get(exclusive)
        if strict is not None and result.get("type") == "integer":
            result[inclusive] = strict + step
        elif strict is not None:
            result[inclusive] = strict
            result[exclusive] = True
        bound = result.get(inclusive, 0)
        if bound % 1:
            msg = (
                f"{path}: a fractional bound; the API server cuts it when the value is whole, so write a rule"
            )
            raise NotStructural(msg)
        if abs(bound) > _EXACT:
            del result[inclusive]


def _translate_object(
    schema: Schema,
    result: Schema,
    definitions: Mapping[str, Any],
    *,
    path: str,
    observed: bool,
    within: tuple[str, ...],
) -> None:
    if schema.get("properties"):
        result["properties"] = {
            name: translate(child, definitions, path=f"{path}.{name}", observed=observed, within=within)
            for name, child in schema["properties"].items()
        }
        return
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        result["additionalProperties"] = translate(
            values, definitions, path=f"{path}.*", observed=observed, within=within
        )
        if "maxProperties" not in result:
            msg = f"{path}: give the map a greatest size (max_length)"
            raise NotStructural(msg)
    elif not result.get(PRESERVE):
        msg = f"{path}: an object without fields; name them, or mark it {PRESERVE}"
        raise NotStructural(msg)


def _translate_array(
    schema: Schema,
    result: Schema,
    definitions: Mapping[str, Any],
    *,
    path: str,
    observed: bool,
    within: tuple[str, ...],
) -> None:
    items = schema.get("items")
    if not isinstance(items, dict):
        msg = f"{path}: the type of the items is open"
        raise NotStructural(msg)
    result["items"] = translate(items, definitions, path=f"{path}[]", observed=observed, within=within)
    if "maxItems" not in result:
        msg = f"{path}: give the list a greatest length (max_length)"
        raise NotStructural(msg)
    if schema.get("uniqueItems"):
        result[LIST_TYPE] = "set"
    properties = result["items"].get("properties", {})
    required = result["items"].get("required", ())
    for key in result.get(LIST_KEYS, ()):
        if key not in properties or (key not in required and "default" not in properties[key]):
            msg = f"{path}: the list key {key} must be a required or defaulted field of the items"
            raise NotStructural(msg)


def _check_bounds(result: Schema, *, path: str) -> None:
    """Hold CR1: integers have a format, strings a greatest length."""
    kind = result.get("type")
    if kind == "integer" and "format" not in result:
        msg = f"{path}: give the integer a format, int32 or int64"
        raise NotStructural(msg)
    if kind == "string" and not {"maxLength", "enum", "format"} & result.keys():
        msg = f"{path}: give the string a greatest length (max_length)"
        raise NotStructural(msg)


def _default(value: Any, result: Schema, *, path: str) -> Any:
    """Return the default to write; a default model is `{}`, since its fields bring their own defaults."""
    properties = result.get("properties")
    if properties is None or not isinstance(value, dict):
        return value
    for name, given in value.items():
        own = properties[name].get("default")
        if given is not None and own != ({} if isinstance(given, dict) else given):
            msg = f"{path}: its default for {name} differs from that field's own default"
            raise NotStructural(msg)
    return {}
