"""Who an agent is: its pod-bound token, reviewed by the API server, mapped to a live pod of ours.

Rules AA1 to AA6 of design/security.md. The token proves a pod uid; what the body claims is compared with the pod
that our cache holds under this uid, on every request.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.cache.projection import Pod
from runtime.client.errors import ApiError, ResponseMalformed, TransportError
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.objects import TOKEN_REVIEWS

AUDIENCE = "trainer-operator"
REFUSAL_LIFETIME = 5.0
"""Seconds for which a refusal is kept, so that a flood of bad tokens is no flood of reviews."""
POD_UID = "authentication.kubernetes.io/pod-uid"


class Unauthenticated(Exception):
    """The token is missing, of another audience, expired or not known (401)."""


class NotAMember(Exception):
    """The token is genuine, but not that of the pod which the request speaks for (403)."""


class NotKnownYet(Exception):
    """The pod is not in the cache, or the review cannot be made now; try again (503)."""


@dataclass(slots=True)
class _Cached:
    outcome: str | Unauthenticated | NotAMember
    """The pod uid, or why the token is refused."""
    until: float


class Authenticator:
    """Reviews tokens, with a cache.

    Guarantees: a token without the audience or without a pod uid is never accepted (AA2, AA3); the same token is
    reviewed once at a time and at most once a minute; refusals are kept for 5 s; when the API server cannot be asked,
    cached identities go on and others get NotKnownYet (AA6).
    """

    def __init__(
        self,
        client: Client,
        pod_by_uid: Callable[[str], Pod | None],
        clock: Clock,
        *,
        lifetime: float = 60.0,
        limit: int = 20_000,
    ) -> None:
        self._client = client
        self._pod_by_uid = pod_by_uid
        self._clock = clock
        self._lifetime = lifetime
        self._limit = limit
        self._cache: OrderedDict[bytes, _Cached] = OrderedDict()
        self._flights: dict[bytes, asyncio.Event] = {}

    async def pod_of(self, header: str | None) -> Pod:
        """Return the live pod that an Authorization header belongs to.

        Raises: Unauthenticated, NotAMember, NotKnownYet.
        """
        if header is None or not header.startswith("Bearer ") or len(header) > 16 * 1024:
            raise Unauthenticated("a bearer token is required")
        uid = await self._pod_uid(header[7:].strip())
        pod = self._pod_by_uid(uid)
        if pod is None:
            raise NotKnownYet(f"pod uid {uid} is not in the cache")
        return pod

    async def _pod_uid(self, token: str) -> str:
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        while True:
            cached = self._cache.get(digest)
            if cached is not None and self._clock.monotonic() < cached.until:
                return _answer(cached.outcome)
            flight = self._flights.get(digest)
            if flight is None:
                break
            await flight.wait()
        self._flights[digest] = asyncio.Event()
        try:
            return await self._review(token, digest)
        finally:
            self._flights.pop(digest).set()

    async def _review(self, token: str, digest: bytes) -> str:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            answer = await self._client.create(TOKEN_REVIEWS, body)
        except (ApiError, TransportError, ResponseMalformed) as error:
            raise NotKnownYet(f"the token cannot be reviewed now: {error}") from error
        status: dict[str, Any] = answer.get("status") or {}
        if not status.get("authenticated") or AUDIENCE not in (status.get("audiences") or ()):
            return self._keep(digest, Unauthenticated("the token was refused"), REFUSAL_LIFETIME)
        extra: dict[str, list[str]] = (status.get("user") or {}).get("extra") or {}
        uids = extra.get(POD_UID, [])
        if len(uids) != 1:
            return self._keep(digest, NotAMember("the token is not bound to a pod"), REFUSAL_LIFETIME)
        return self._keep(digest, uids[0], self._lifetime)

    def _keep(self, digest: bytes, outcome: str | Unauthenticated | NotAMember, lifetime: float) -> str:
        self._cache[digest] = _Cached(outcome, self._clock.monotonic() + lifetime)
        self._cache.move_to_end(digest)
        while len(self._cache) > self._limit:
            self._cache.popitem(last=False)
        return _answer(outcome)


def _answer(outcome: str | Unauthenticated | NotAMember) -> str:
    if isinstance(outcome, Exception):
        raise type(outcome)(*outcome.args)  # a new one each time: a raised error keeps its frames alive
    return outcome
