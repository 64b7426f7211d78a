"""Rules over several values, each written once and enforced twice (CR3).

A `Rule` carries a CEL expression for the API server and the same decision as a Python function for webhooks,
reconcilers and the command line. It stands beside the fields it speaks of: in the `rules` of a model, or in the
annotation of a single field. `trainer_operator.api.validation` walks the models and asks the Python side; the CRD
generator copies the CEL side. One shared table of examples is run against both.

A message says what is allowed; the value that was refused is shown in front of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

VALIDATIONS = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """A decision about one value: `self` in CEL, the argument of `holds` in Python."""

    cel: str | None
    """The CEL expression that must be true; None where CEL can't express it (the webhook still holds it)."""
    message: str
    """What is allowed, as the end of the sentence `<value> is not allowed: <message>`."""
    holds: Callable[[Any], bool]
    """The same decision in Python."""
    at: str = ""
    """Path of the offending field below `self`, with the names of the wire (`maxWorkers`)."""
    shows: str = ""
    """CEL expression of the refused value; empty when there is no single value to show."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the rule to the schema of the field that it annotates."""
        schema = handler(core_schema)
        if self.cel is not None:
            schema[VALIDATIONS] = [*schema.get(VALIDATIONS, ()), self.as_validation()]
        return schema

    def as_validation(self) -> dict[str, Any]:
        """Return the item for `x-kubernetes-validations`."""
        return _validation(cel=self.cel or "true", message=self.message, at=self.at, shows=self.shows)


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """A decision about a change: `oldSelf` and `self` in CEL, `allows(old, new)` in Python."""

    cel: str
    message: str
    allows: Callable[[Any, Any], bool]
    at: str = ""
    shows: str = ""

    def as_validation(self) -> dict[str, Any]:
        """Return the item for `x-kubernetes-validations`."""
        return _validation(cel=self.cel, message=self.message, at=self.at, shows=self.shows)


def _validation(*, cel: str, message: str, at: str, shows: str) -> dict[str, Any]:
    """Render one rule; the plain message is what the API server falls back to."""
    item: dict[str, Any] = {"rule": cel, "message": message}
    if shows:
        # `format`, not `+`: the API server can't bound the cost of a number's text, except as an argument.
        sentence = _quoted("%s is not allowed: " + message.replace("%", "%%"))
        item["messageExpression"] = f"{sentence}.format([{shows}])"
    if at and not at.startswith("metadata."):  # the API server takes paths of the schema only
        item["fieldPath"] = f".{at}"
    return item


def _quoted(text: str) -> str:
    """Write a CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
