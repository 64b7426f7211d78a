"""The cluster of the integration tests for real frameworks: `make frameworks`, which says where they are in FRAMEWORKS."""

import json
import os

import pytest

from integration.trainer.conftest import _the_audit_log_breaks_no_invariant, job, until, world

__all__ = ["_the_audit_log_breaks_no_invariant", "job", "until", "world"]


def pytest_configure(config):
    config.addinivalue_line("markers", "short: one lost process of each framework, in a minute")


@pytest.fixture(scope="session")
def installed():
    """Where each framework is, or why it cannot be here."""
    return json.loads(os.environ["FRAMEWORKS"])


@pytest.fixture(scope="session")
def results():
    """What was measured, by case; written as JSON to FRAMEWORKS_RESULT if that is set."""
    found = {}
    yield found
    for case, result in found.items():
        print(f"\n{case}: {json.dumps(result)}")
    path = os.environ.get("FRAMEWORKS_RESULT")
    if path and found:
        with open(path, "w") as file:
            json.dump(found, file, indent=2)
            file.write("\n")
