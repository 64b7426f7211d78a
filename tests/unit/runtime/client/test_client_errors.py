"""One error class per reason."""

import orjson
import pytest

from runtime.client import errors
from runtime.client.errors import error_of
from runtime.errors import RuntimeFault


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.MethodNotAllowed),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Gone", errors.Gone),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.InternalError),
        (503, "ServiceUnavailable", errors.ServiceUnavailable),
        (504, "Timeout", errors.ServerTimeout),
        (500, "ServerTimeout", errors.ServerTimeout),
        (409, "", errors.Conflict),
        (418, "Teapot", errors.ApiError),
    ],
)
def test_the_reason_decides_then_the_code(code, reason, expected):
    """K4."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": "why", "details": {"name": "x"}}
    error = error_of(code, orjson.dumps(body))
    assert type(error) is expected
    assert isinstance(error, RuntimeFault)
    assert (error.status, error.reason, error.message, str(error)) == (code, reason, "why", "why")
    assert error.details == {"name": "x"}
    assert error.status_object == body


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[]", b'"text"', b"\xff\xfe"])
def test_a_body_that_is_no_status_still_gives_an_error(body):
    """K4."""
    error = error_of(503, body)
    assert type(error) is errors.ServiceUnavailable
    assert error.status == 503
    assert str(error)


def test_retry_after_comes_from_the_header_or_the_status():
    """K2."""
    body = orjson.dumps({"kind": "Status", "reason": "TooManyRequests", "details": {"retryAfterSeconds": 4}})
    assert error_of(429, body).retry_after == 4.0
    assert error_of(429, body, retry_after=2.0).retry_after == 2.0
    assert error_of(429, b"").retry_after is None


def test_causes_are_found_by_reason():
    """K4."""
    body = {"kind": "Status", "details": {"causes": [{"reason": "DisruptionBudget"}]}}
    error = error_of(429, orjson.dumps(body))
    assert error.has_cause("DisruptionBudget")
    assert not error.has_cause("Other")
