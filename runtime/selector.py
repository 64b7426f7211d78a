"""Label selectors: written for the API, and matched against labels at hand.

Both spellings are read: the JSON form (`matchLabels`, `matchExpressions`) and the text form of the `labelSelector`
parameter. A selector is a value; all its requirements must hold.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

__all__ = ["Operator", "Requirement", "Selector"]

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_PRESENCE = re.compile(rf"(!?)\s*({_KEY})")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels fulfil the condition; a missing label fulfils `NotIn`, as in the API."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "NotIn" if len(self.values) == 1:
                return f"{self.key}!={self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements; the empty one matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> "Selector":
        """Select by equality with each of the labels."""
        return cls(tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())))

    @classmethod
    def from_object(cls, selector: Mapping[str, Any] | None) -> "Selector":
        """Read the JSON form (`metav1.LabelSelector`).

        Raises: ValueError naming the requirement that makes no sense.
        """
        selector = selector or {}
        found = list(cls.of(selector.get("matchLabels") or {}).requirements)
        for expression in selector.get("matchExpressions") or ():
            key, operator = expression.get("key") or "", expression.get("operator") or ""
            values = tuple(expression.get("values") or ())
            if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
                raise ValueError(f"label selector: operator {operator!r} of key {key!r} is unknown")
            if (operator in ("In", "NotIn")) != bool(values):
                raise ValueError(
                    f"label selector: operator {operator} of key {key!r} has {len(values)} values"
                )
            found.append(Requirement(key, cast("Operator", operator), values))
        return cls(tuple(found))

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """Read the text form.

        Raises: ValueError naming the part that cannot be read.
        """
        return cls(tuple(_parse_requirement(part) for part in _split(text) if part))

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Tell whether labels fulfil every requirement."""
        return all(requirement.matches(labels or {}) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", text)]


def _parse_requirement(part: str) -> Requirement:
    if match := _EQUALITY.fullmatch(part):
        key, sign, value = match.groups()
        return Requirement(key, "NotIn" if sign == "!=" else "In", (value,))
    if match := _SET.fullmatch(part):
        key, word, values = match.groups()
        return Requirement(
            key, "In" if word == "in" else "NotIn", tuple(value.strip() for value in values.split(","))
        )
    if match := _PRESENCE.fullmatch(part):
        absent, key = match.groups()
        return Requirement(key, "DoesNotExist" if absent else "Exists")
    raise ValueError(f"label selector: cannot read {part!r}")
