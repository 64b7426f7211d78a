"""The Python side of the rules, on the table that the API server is held against too."""

import pytest

import examples_api as examples
import examples_api_bad as refused
from trainer_operator.api import Trainer
from trainer_operator.api.validation import FieldError, rule_errors, validate


def by_name(case):
    return case.name


@pytest.mark.parametrize("good", examples.GOOD, ids=by_name)
def test_good_example_has_no_errors(good):
    """CR3, TR30."""
    assert validate(good.obj) == []


@pytest.mark.parametrize("bad", [*refused.BAD, *refused.PYTHON_ONLY_BAD], ids=by_name)
def test_bad_example_names_field_value_and_what_is_allowed(bad):
    """CR3, TR29, TR31, EC1."""
    errors = {error.path: error for error in validate(bad.obj)}
    assert bad.path in errors, errors
    sentence = str(errors[bad.path]).lower()
    assert bad.shown.lower()[:100] in sentence
    assert bad.allowed.lower() in sentence


@pytest.mark.parametrize("change", [*examples.CHANGES, *examples.STATE_CHANGES], ids=by_name)
def test_change_is_judged_as_the_table_says(change):
    """CR3, CR8, CS7, TR36."""
    errors = validate(change.new, change.old)
    assert [error.path for error in errors] == ([change.path] if change.path else [])
    assert all(change.allowed in error.message for error in errors)


@pytest.mark.parametrize("document", [None, 7, "text", [], {}, {"kind": ["Trainer"]}, {"kind": "Pod"}])
def test_foreign_document_gives_errors_not_exceptions(document):
    """TR30."""
    assert validate(document)


def test_unreadable_old_object_forbids_no_change():
    """CR13: an object from before a rule can still be repaired."""
    assert validate(examples.TRAINER, examples.trainer("spec.epochs", "ten")) == []


def test_all_broken_rules_are_reported_at_once():
    """CR3."""
    obj = examples.env({"name": "TRAINER_A", "value": "1"}, {"name": "TRAINER_B", "value": "2"})
    paths = [error.path for error in rule_errors(Trainer.read(obj))]
    assert paths == ["spec.env[0].name", "spec.env[1].name"]


def test_error_is_one_sentence_with_path_value_and_rule():
    """CR3."""
    error = FieldError("spec.epochs", -1, "must be at least 1")
    assert str(error) == "spec.epochs: Invalid value: -1: must be at least 1"


def test_error_shows_the_beginning_of_a_long_value_only():
    """TN, RD: a refused value can be of any size."""
    assert len(str(FieldError("spec.image", "x" * 10_000, "too long"))) < 200


def test_unknown_fields_are_read_past():
    """TR32: an older operator lives with a newer CRD."""
    assert Trainer.read(examples.trainer("spec.fieldOfNextYear", {"a": 1})).spec.epochs == 3
