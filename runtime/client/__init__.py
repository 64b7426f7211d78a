"""The API server over HTTP: configuration, credentials, deadlines, retries, and verbs that return JSON."""

from runtime.client.apply import apply, apply_status
from runtime.client.config import ClientConfig, Timeouts
from runtime.client.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ResponseMalformed,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
    TransportError,
    TransportFault,
    Unauthorized,
    error_of,
)
from runtime.client.rest import Client, ListResult, PatchKind
from runtime.client.retry import retry_on_conflict

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Client",
    "ClientConfig",
    "Conflict",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "ListResult",
    "MethodNotAllowed",
    "NotFound",
    "PatchKind",
    "ResponseMalformed",
    "ServerTimeout",
    "ServiceUnavailable",
    "Timeouts",
    "TooManyRequests",
    "TransportError",
    "TransportFault",
    "Unauthorized",
    "apply",
    "apply_status",
    "error_of",
    "retry_on_conflict",
]
