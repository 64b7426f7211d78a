"""The plugin's copy of names is that of the API."""

from trainer_operator.api import names, resources
from trainer_operator.api.checkpoint import VERIFY_ANNOTATION
from trainer_operator.cli.plugin import kinds


def test_kinds_and_labels_are_those_of_the_api():
    """CL1, CR5."""
    assert (kinds.TRAINERS, kinds.CHECKPOINTS) == (resources.TRAINERS, resources.CHECKPOINTS)
    for label in ("TRAINER_LABEL", "ROLE_LABEL", "INDEX_LABEL", "ATTEMPT_LABEL"):
        assert getattr(kinds, label) == getattr(names, label)
    assert (kinds.IMPORT_ANNOTATION, kinds.IMPORT_FAILED) == (names.IMPORT_ANNOTATION, names.IMPORT_FAILED)
    assert kinds.VERIFY_ANNOTATION == VERIFY_ANNOTATION
    assert kinds.trainer_selector("digits") == names.trainer_selector("digits")
