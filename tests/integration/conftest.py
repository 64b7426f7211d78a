"""What holds for every integration test: caches are only read (S4), and the audit log breaks no invariant."""

import contextlib

import pytest

from runtime.testing.mutation import MutationDetector
from trainer_operator.demo.invariants import check
from trainer_operator.devcluster.auditlog import AuditLog

OPERATOR = "system:serviceaccount:trainer-operator:trainer-operator"


@pytest.fixture(autouse=True)
def _caches_are_only_read():
    detector = MutationDetector()
    with detector.installed():
        yield
    findings = detector.findings()
    assert not findings, findings


@pytest.fixture(autouse=True)
def _the_audit_log_breaks_no_invariant(request):
    """Check the part of the log that was written during the test, for the Trainers that were made in it."""
    with contextlib.ExitStack() as checks:
        for name, log_of in AUDITED.items():
            if name in request.fixturenames:
                checks.enter_context(watched(log_of(request.getfixturevalue(name))))
        yield


AUDITED = {
    "world": lambda world: world.cluster.audit_log,
}
"""Fixtures with an API server, and where its log is."""


@contextlib.contextmanager
def watched(file):
    log = AuditLog(file)
    mark = log.mark()
    yield
    violations = check(log.since(mark), operator=OPERATOR)
    assert not violations, "\n" + "\n".join(map(str, violations))
