"""The plugin's copy of names is that of the API, which it starts without."""

import subprocess
import sys

from trainer_operator.api import names, resources
from trainer_operator.api.checkpoint import VERIFY_ANNOTATION
from trainer_operator.audit import writer
from trainer_operator.cli.plugin import kinds


def test_kinds_and_labels_are_those_of_the_api():
    """CL1, CR5."""
    assert (kinds.TRAINERS, kinds.CHECKPOINTS) == (resources.TRAINERS, resources.CHECKPOINTS)
    assert kinds.AUDIT_LOGS == resources.AUDIT_LOGS
    assert (kinds.AUDIT_NAMESPACE, kinds.AUDIT_ANCHORS) == (writer.NAMESPACE, writer.ANCHORS)
    for label in ("TRAINER_LABEL", "ROLE_LABEL", "INDEX_LABEL", "ATTEMPT_LABEL"):
        assert getattr(kinds, label) == getattr(names, label)
    assert (kinds.IMPORT_ANNOTATION, kinds.IMPORT_FAILED) == (names.IMPORT_ANNOTATION, names.IMPORT_FAILED)
    assert kinds.NOTEBOOK_ROLE == names.NOTEBOOK_ROLE
    assert kinds.VERIFY_ANNOTATION == VERIFY_ANNOTATION
    assert kinds.RESTORE_ANNOTATION == names.RESTORE_ANNOTATION
    assert kinds.trainer_selector("digits") == names.trainer_selector("digits")


def test_the_models_of_the_api_are_not_loaded_before_a_command_needs_them():
    """CL1: they take longer than all else, at each press of the tab key. In a process of its own."""
    program = "import sys, trainer_operator.cli.plugin.main; print('pydantic' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert asked.stdout == "False\n"
