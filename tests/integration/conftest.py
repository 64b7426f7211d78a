"""What holds for every integration test: caches are only read (S4)."""

import pytest

from runtime.testing.mutation import MutationDetector


@pytest.fixture(autouse=True)
def _caches_are_only_read():
    detector = MutationDetector()
    with detector.installed():
        yield
    findings = detector.findings()
    assert not findings, findings
