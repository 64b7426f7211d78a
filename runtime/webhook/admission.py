"""One admission review: what is asked, what may be answered, and the form of both (AD7, AD8).

A reviewer is told one request and returns a verdict. It must be pure, for anybody who reaches the port can ask, and a
request may be a dry run. Whatever goes wrong is an answer too: the API server shows our message to the user, where a
broken connection would only say that the webhook failed.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import orjson

from runtime.objects import ObjectKey
from runtime.webhook.review import ObjectMalformed, ReviewMalformed, decode_object, decode_review

__all__ = [
    "MAX_CREATE",
    "AdmissionRequest",
    "Allowed",
    "Denied",
    "ObjectMalformed",
    "Reviewer",
    "Verdict",
    "encode_verdict",
    "parse_review",
    "review",
]

_API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"

MAX_CREATE = 1 << 20
"""Bytes of the largest object that may be created: etcd takes no more than 1.5 MiB anyway."""


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """Who asks the API server."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None


class Kind(msgspec.Struct, frozen=True, gc=False):
    """Group, version and kind of the object."""

    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One request to the API server, before it is carried out."""

    uid: str
    operation: str = ""
    kind: Kind = Kind()
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    dry_run: bool | None = None
    user_info: UserInfo = UserInfo()
    raw_object: msgspec.Raw = msgspec.field(name="object", default=msgspec.Raw(b"null"))
    raw_old_object: msgspec.Raw = msgspec.field(name="oldObject", default=msgspec.Raw(b"null"))

    @property
    def key(self) -> ObjectKey:
        """Return namespace and name; the name is empty while the API server has yet to generate it."""
        return ObjectKey(self.namespace, self.name)

    def decode(self) -> dict[str, Any] | None:
        """Decode the object as it would be stored; None for a DELETE.

        Raises: ObjectMalformed, which need not be caught: the request is then denied.
        """
        return decode_object(self.raw_object)

    def decode_old(self) -> dict[str, Any] | None:
        """Decode the object as it is stored; None for a CREATE.

        Raises: ObjectMalformed, which need not be caught.
        """
        return decode_object(self.raw_old_object)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The request may go on, perhaps changed by a JSON patch."""

    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Denied:
    """The request is refused; the message is shown to whoever made it."""

    message: str
    code: int = 403
    reason: str = "Forbidden"
    warnings: Sequence[str] = field(default=())


Verdict = Allowed | Denied


class Reviewer(Protocol):
    """Decides over requests."""

    async def review(self, request: AdmissionRequest) -> Verdict:
        """Return the verdict and change nothing: the request may be a dry run, or not be the API server's at all."""
        ...


class _Review(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


_decoder = msgspec.json.Decoder(_Review)


def parse_review(body: bytes) -> tuple[AdmissionRequest, Denied | None]:
    """Read a review, and the denial it gets without being shown to a reviewer, if it does.

    Raises: ReviewMalformed when there is no request whose uid could be answered.
    """
    parsed = decode_review(_decoder, body)
    if parsed.request is None or not parsed.request.uid:
        raise ReviewMalformed("the review has no request with a uid")
    request = parsed.request
    if (parsed.api_version, parsed.kind) != (_API_VERSION, _KIND):
        told = f"got {parsed.kind or 'no kind'} of {parsed.api_version or 'no version'}"
        return request, Denied(f"{told}, expected {_KIND} of {_API_VERSION}", 400, "BadRequest")
    size = len(memoryview(request.raw_object))
    if request.operation == "CREATE" and size > MAX_CREATE:
        message = f"the object has {size} bytes, more than the {MAX_CREATE} that can be stored"
        return request, Denied(message, 413, "RequestEntityTooLarge")
    return request, None


async def review(reviewer: Reviewer, request: AdmissionRequest) -> Verdict:
    """Ask a reviewer; an object that cannot be read is denied."""
    try:
        return await reviewer.review(request)
    except ObjectMalformed as error:
        return Denied(str(error), 400, "BadRequest")


def encode_verdict(uid: str, verdict: Verdict) -> bytes:
    """Return the body of the answer, with the uid of the request."""
    response: dict[str, Any] = {"uid": uid, "allowed": isinstance(verdict, Allowed)}
    match verdict:
        case Allowed(patch) if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(list(patch))).decode()
        case Denied(message, code, reason):
            response["status"] = {"code": code, "reason": reason, "message": message}
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": response})
