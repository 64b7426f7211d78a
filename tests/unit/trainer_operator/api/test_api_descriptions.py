"""What stands below a field is its description, and is read only when a schema is asked for."""

import subprocess
import sys

from trainer_operator.api.descriptions import descriptions
from trainer_operator.api.meta import ApiModel, Int32


class Base(ApiModel):
    """A model with fields."""

    size: Int32 = 1
    """How large
    it is."""
    bare: Int32 = 2


class Derived(Base):
    """A model that adds to another."""

    bare: Int32 = 3
    """Described here."""
    last: Int32 = 4


def test_fields_are_described_by_what_stands_below_them():
    """CR12: also those of base classes."""
    assert descriptions(Base) == {"size": "How large\nit is."}
    assert descriptions(Derived) == {"size": "How large\nit is.", "bare": "Described here."}
    schema = Derived.model_json_schema()
    assert schema["properties"]["size"]["description"] == "How large\nit is."
    assert "description" not in schema["properties"]["last"]


def test_a_model_without_source_has_no_descriptions():
    assert descriptions(type("Made", (ApiModel,), {"__module__": __name__})) == {}


def test_the_operator_starts_without_reading_the_source_of_models():
    """It took a good part of the time until an operator worked again. In a process of its own."""
    program = (
        "import linecache, trainer_operator.api.trainer, trainer_operator.api.checkpoint\n"
        "print([name for name in linecache.cache if 'trainer_operator' in name])"
    )
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert asked.stdout == "[]\n"
