"""Which user asks, and whether the API server lets him: a token review, then an access review.

Nothing is kept: a person asks rarely, and a right that was taken away must end at once.
"""

from dataclasses import dataclass

from runtime.client.errors import ApiError, ResponseMalformed, TransportError
from runtime.client.rest import Client
from runtime.objects import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ObjectKey
from trainer_operator.api.resources import TRAINERS

MAX_TOKEN = 16 * 1024


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered: an HTTP status and a sentence."""

    status: int
    message: str


class UserReviewer:
    """Asks the API server who a token belongs to and what he may do."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def refuses(self, token: str, key: ObjectKey) -> Refusal | None:
        """Return why the token's user may not get a Trainer, or None if he may."""
        if len(token) > MAX_TOKEN:
            return Refusal(401, f"the token has more than {MAX_TOKEN} bytes")
        try:
            user = await self._user(token)
            if user is None:
                return Refusal(401, "the token is not known to the API server")
            allowed = await self._may_get(user, key)
        except (ApiError, TransportError, ResponseMalformed) as error:
            return Refusal(503, f"the API server cannot be asked for your rights now: {error}")
        if allowed:
            return None
        name = user.get("username", "")
        return Refusal(403, f"{name} may not get Trainer {key.name} in namespace {key.namespace}")

    async def _user(self, token: str) -> dict[str, object] | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._client.create(TOKEN_REVIEWS, body)).get("status") or {}
        return dict(status.get("user") or {}) if status.get("authenticated") else None

    async def _may_get(self, user: dict[str, object], key: ObjectKey) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"),
                "uid": user.get("uid"),
                "groups": user.get("groups"),
                "extra": user.get("extra"),
                "resourceAttributes": {
                    "namespace": key.namespace,
                    "name": key.name,
                    "verb": "get",
                    "group": TRAINERS.group,
                    "resource": TRAINERS.plural,
                },
            },
        }
        status = (await self._client.create(SUBJECT_ACCESS_REVIEWS, body)).get("status") or {}
        return bool(status.get("allowed"))
