"""One conversion review: objects of a kind, to be shown in another of its versions.

A converter changes one object and must keep its identity, which is checked here: the API server refuses the whole
answer otherwise, and says so only in its own log. One object that cannot be converted fails the review, for a list
with a hole in it would be a lie.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from runtime.errors import RuntimeFault
from runtime.webhook.review import ObjectMalformed, ReviewMalformed, decode_object, decode_review

__all__ = [
    "ConversionFailed",
    "ConversionRequest",
    "Converter",
    "convert_review",
    "encode_failure",
    "parse_review",
]

_API_VERSION = "apiextensions.k8s.io/v1"
_KIND = "ConversionReview"
_SLICE = 100  # as a list is decoded, so that a page of it does not hold up the loop (PY2)
_IDENTITY = ("name", "namespace", "uid")


class ConversionFailed(RuntimeFault):
    """An object has no form in the wanted version; the message is shown to whoever asked for it."""


Converter = Callable[[dict[str, Any], str], dict[str, Any]]
"""Takes an object, its own to change, and an `apiVersion`; returns the object in that version.

It must not fail on any object that any version admits, for such an object could never be read again.
"""


class ConversionRequest(msgspec.Struct, frozen=True, gc=False):
    """The objects and the version they are wanted in."""

    uid: str
    desired: str = msgspec.field(name="desiredAPIVersion", default="")
    objects: tuple[msgspec.Raw, ...] | None = None


class _Review(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: ConversionRequest | None = None


_decoder = msgspec.json.Decoder(_Review)


def parse_review(body: bytes) -> ConversionRequest:
    """Read a review.

    Raises: ReviewMalformed.
    """
    parsed = decode_review(_decoder, body)
    if (parsed.api_version, parsed.kind) != (_API_VERSION, _KIND):
        raise ReviewMalformed(
            f"expected {_KIND} of {_API_VERSION}, got {parsed.kind!r} of {parsed.api_version!r}"
        )
    if parsed.request is None or not parsed.request.uid or not parsed.request.desired:
        raise ReviewMalformed("the review has no request with a uid and a version")
    return parsed.request


async def convert_review(request: ConversionRequest, convert: Converter) -> bytes:
    """Convert every object, yielding to the loop in between, and return the body of the answer."""
    converted: list[dict[str, Any]] = []
    try:
        for number, raw in enumerate(request.objects or (), start=1):
            converted.append(_convert(raw, request.desired, convert))
            if number % _SLICE == 0:
                await asyncio.sleep(0)
    except (ConversionFailed, ObjectMalformed) as error:
        return encode_failure(request.uid, str(error))
    return _encode(request.uid, {"convertedObjects": converted, "result": {"status": "Success"}})


def encode_failure(uid: str, message: str) -> bytes:
    """Return the body of an answer that converts nothing."""
    return _encode(uid, {"convertedObjects": [], "result": {"status": "Failure", "message": message}})


def _convert(raw: msgspec.Raw, desired: str, convert: Converter) -> dict[str, Any]:
    obj = decode_object(raw)
    if obj is None:
        raise ConversionFailed("there is a null among the objects")
    if obj.get("apiVersion") == desired:
        return obj
    before = {name: (obj.get("metadata") or {}).get(name) for name in _IDENTITY}
    converted = convert(obj, desired)
    if converted.get("apiVersion") != desired:
        raise ConversionFailed(
            f"the converter returned {converted.get('apiVersion')!r} instead of {desired!r}"
        )
    after = {name: (converted.get("metadata") or {}).get(name) for name in _IDENTITY}
    if after != before:
        raise ConversionFailed(f"the converter changed the identity of {before['name']!r}")
    return converted


def _encode(uid: str, response: dict[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": {"uid": uid, **response}})
