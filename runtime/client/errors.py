"""What can go wrong between a call and its answer (K4).

::

    RuntimeFault
    ├── ApiError                  the server answered with a Status; it is kept whole
    │   ├── BadRequest            400
    │   ├── Unauthorized          401
    │   ├── Forbidden             403
    │   ├── NotFound              404
    │   ├── MethodNotAllowed      405
    │   ├── AlreadyExists         409, reason AlreadyExists
    │   ├── Conflict              409
    │   ├── Gone                  410, also Expired
    │   ├── Invalid               422
    │   ├── TooManyRequests       429
    │   ├── InternalError         500
    │   ├── ServiceUnavailable    503
    │   └── ServerTimeout         504
    ├── TransportError            no answer: not connected, cut off, or late; the cause is chained
    └── ResponseMalformed         an answer that is not the JSON we asked for

The reason decides the class, the code only when the reason is unknown.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import orjson

from runtime.errors import RuntimeFault

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Conflict",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotFound",
    "ResponseMalformed",
    "ServerTimeout",
    "ServiceUnavailable",
    "TooManyRequests",
    "TransportError",
    "TransportFault",
    "Unauthorized",
    "error_of",
    "error_of_status",
]


class ApiError(RuntimeFault):
    """The server refused or failed; `status_object` is its Status as sent."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        status_object: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message or f"the API server answered {status} without a message")
        self.message = message
        self.status = status
        self.reason = reason
        self.status_object: Mapping[str, Any] = status_object or {}
        self.retry_after = retry_after

    @property
    def details(self) -> Mapping[str, Any]:
        """Return the Status' details: kind, name, causes."""
        return self.status_object.get("details") or {}

    def has_cause(self, reason: str) -> bool:
        """Tell whether one of the causes the server lists has this reason."""
        return any(cause.get("reason") == reason for cause in self.details.get("causes") or ())


class BadRequest(ApiError):
    """The request makes no sense to the server."""


class Unauthorized(ApiError):
    """The credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """The identity may not do this; also an admission webhook's or a quota's refusal."""


class NotFound(ApiError):
    """The object or the kind does not exist."""


class MethodNotAllowed(ApiError):
    """The kind does not support the verb."""


class AlreadyExists(ApiError):
    """An object of that name exists."""


class Conflict(ApiError):
    """The object has changed since it was read, or another manager owns the field."""


class Gone(ApiError):
    """The version or continue token is too old (Gone, Expired)."""


class Invalid(ApiError):
    """Validation failed."""


class TooManyRequests(ApiError):
    """The server sheds load, or a disruption budget refuses an eviction."""


class InternalError(ApiError):
    """The server failed."""


class ServiceUnavailable(ApiError):
    """The server cannot serve now."""


class ServerTimeout(ApiError):
    """The server gave up in time, also when asked for a version it has not seen yet."""


class TransportFault(Enum):
    """How far a request got that has no answer."""

    CONNECT = "not connected"
    RESET = "cut off"
    TIMEOUT = "late"


class TransportError(RuntimeFault):
    """No answer arrived; `fault` tells whether the request can have reached the server."""

    def __init__(self, message: str, *, fault: TransportFault) -> None:
        super().__init__(message)
        self.fault = fault


class ResponseMalformed(RuntimeFault):
    """The server's answer is not the JSON that was asked for."""


_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Gone": Gone,
    "Expired": Gone,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": InternalError,
    "ServiceUnavailable": ServiceUnavailable,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: ServerTimeout,
}


def error_of(status: int, body: bytes, *, retry_after: float | None = None) -> ApiError:
    """Turn an answer of 400 or above into its error; a body that is no Status becomes the message."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, dict) and parsed.get("kind") == "Status":
        return error_of_status(parsed, code=status, retry_after=retry_after)
    text = body[:500].decode("utf-8", "replace").strip()
    kind = _BY_CODE.get(status, ApiError)
    return kind(text, status=status, retry_after=retry_after)


def error_of_status(
    status_object: Mapping[str, Any], *, code: int | None = None, retry_after: float | None = None
) -> ApiError:
    """Turn a Status object, from an answer or from within a watch, into its error."""
    found = status_object.get("code")
    status = code if code is not None else found if isinstance(found, int) else 0
    reason = str(status_object.get("reason") or "")
    kind = _BY_REASON.get(reason) or _BY_CODE.get(status, ApiError)
    if retry_after is None:
        seconds = (status_object.get("details") or {}).get("retryAfterSeconds")
        retry_after = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None
    message = str(status_object.get("message") or "")
    return kind(message, status=status, reason=reason, status_object=status_object, retry_after=retry_after)
