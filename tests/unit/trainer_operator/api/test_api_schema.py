"""The translation from pydantic's JSON schema to a structural one, row by row of the table in its module."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, StringConstraints

from trainer_operator.api.meta import ApiModel, Int32, Int64, ListType, ShortText
from trainer_operator.api.quantity import Quantity
from trainer_operator.api.rules import Rule
from trainer_operator.api.schema import NotStructural, structural_schema, translate


def field(annotation, default=...):
    """Return the structural schema of one field."""
    namespace = {"__annotations__": {"value": annotation}, "__module__": __name__}
    if default is not ...:
        namespace["value"] = default
    model = type("Model", (ApiModel,), namespace)
    return structural_schema(model)["properties"]["value"]


class Inner(ApiModel):
    """An inner model."""

    count: Int32 = 4
    name: ShortText = "x"


class Recursive(ApiModel):
    """A model in itself."""

    child: "Recursive | None" = None


class Named(ApiModel):
    """An item."""

    name: ShortText
    note: ShortText | None = None


INT32_MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("annotation", "default", "expected"),
    [
        (ShortText | None, None, {"type": "string", "maxLength": 256}),
        (Int32, 3, {"type": "integer", "format": "int32", "minimum": 0, "maximum": INT32_MAX, "default": 3}),
        (Int64 | None, None, {"type": "integer", "format": "int64", "minimum": 0}),
        (bool, ..., {"type": "boolean"}),
        (Literal["one"], ..., {"type": "string", "enum": ["one"]}),
        (Literal["a", "b"] | None, None, {"type": "string", "enum": ["a", "b"]}),
        (Literal[True] | None, None, {"type": "boolean", "enum": [True]}),
        (
            Annotated[int, Field(gt=0, lt=10, json_schema_extra={"format": "int64"})],
            ...,
            {"type": "integer", "format": "int64", "minimum": 1, "maximum": 9},
        ),
        (
            Annotated[float, Field(gt=0, lt=1)],
            ...,
            {
                "type": "number",
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 1,
                "exclusiveMaximum": True,
            },
        ),
        (
            Annotated[set[ShortText], Field(max_length=4)],
            ...,
            {
                "type": "array",
                "items": {"type": "string", "maxLength": 256},
                "maxItems": 4,
                "x-kubernetes-list-type": "set",
            },
        ),
        (
            Annotated[dict[ShortText, ShortText], Field(max_length=4)],
            ...,
            {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 256},
                "maxProperties": 4,
            },
        ),
        (
            Annotated[
                dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
            ],
            ...,
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
    ],
)
def test_field_is_translated(annotation, default, expected):
    """CR1 and its table."""
    assert field(annotation, default) == expected


def test_quantity_is_int_or_string_without_type():
    """CR1 table: `int | str`."""
    schema = field(Quantity | None, None)
    assert schema.pop("pattern")
    assert schema == {"x-kubernetes-int-or-string": True, "maxLength": 32}


def test_reference_is_inlined_and_default_model_becomes_empty_object():
    """CR1 table: `$ref`, default under an optional parent."""
    schema = field(Inner, Inner())
    assert schema["default"] == {}
    assert schema["properties"]["count"]["default"] == 4
    assert schema["description"] == "An inner model."
    assert "required" not in schema


def test_default_model_that_differs_from_its_fields_is_refused():
    """CR1 table: a default the API server would apply differently."""
    with pytest.raises(NotStructural, match=r"^Model\.value: its default for count differs"):
        field(Inner, Inner(count=5))


def test_observed_part_has_neither_defaults_nor_rules():
    """TR32."""
    schema = structural_schema(Inner, observed=True)
    assert not [name for name, child in schema["properties"].items() if "default" in child]


def test_closed_model_loses_its_additional_properties_false():
    """CR1 table: it would exclude properties."""

    class Closed(ApiModel, extra="forbid"):
        """A closed model."""

        flag: bool

    assert "additionalProperties" not in structural_schema(Closed)


def test_list_map_keeps_its_keys():
    """CR1 table: list-map keys."""
    schema = field(Annotated[tuple[Named, ...], Field(max_length=8), ListType("name")])
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == ["name"]


def test_rules_of_fields_and_models_become_validations():
    """CR3."""
    rule = Rule(cel="self != 'x'", message='not "x"', holds=lambda value: value != "x", shows="self")
    schema = field(Annotated[str, StringConstraints(max_length=9), rule] | None, None)
    assert schema["x-kubernetes-validations"] == [
        {
            "rule": "self != 'x'",
            "message": 'not "x"',
            "messageExpression": '"%s is not allowed: not \\"x\\"".format([self])',
        }
    ]


@pytest.mark.parametrize(
    ("annotation", "sentence"),
    [
        (Recursive, "Recursive contains itself"),
        (Any, "the type is open"),
        (str, "give the string a greatest length"),
        (int, "give the integer a format"),
        (tuple[ShortText, ...], "give the list a greatest length"),
        (Annotated[list, Field(max_length=3)], "the type is open"),
        (tuple[ShortText, bool], "prefixItems"),
        (Annotated[float, Field(ge=0.5)], "a fractional bound"),
        (dict[ShortText, ShortText], "give the map a greatest size"),
        (Inner | Named, "a union isn't structural"),
        (bool | ShortText, "a union isn't structural"),
        (Annotated[tuple[Named, ...], Field(max_length=8), ListType("note")], "list key note"),
        (Annotated[tuple[Named, ...], Field(max_length=8), ListType("missing")], "list key missing"),
    ],
)
def test_what_the_api_server_would_refuse_or_drop_is_an_error_with_the_path(annotation, sentence):
    """CR1: nothing is passed through silently."""
    with pytest.raises(NotStructural, match=rf"^Model\.value.*{sentence}"):
        field(annotation)


def test_plain_object_without_fields_is_an_error():
    """CR1."""

    class Empty(BaseModel):
        """Nothing."""

    with pytest.raises(NotStructural):
        structural_schema(Empty)


def test_unknown_keyword_is_named():
    """CR1."""
    with pytest.raises(NotStructural, match="x: contentEncoding, patternProperties can't"):
        translate({"type": "string", "contentEncoding": "b", "patternProperties": {}}, {}, path="x")
