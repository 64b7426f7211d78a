"""Who may see a State Tree: the API server's word on token and right, and what is said when there is none."""

import pytest

from runtime.client.errors import Forbidden, TransportError, TransportFault
from runtime.objects import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ObjectKey
from trainer_operator.server.users import MAX_TOKEN, UserReviewer

KEY = ObjectKey("ns", "t")
ADA = {"username": "ada", "uid": "7", "groups": ["team"], "extra": {"k": ["v"]}}


class Api:
    """An API server that knows one user and answers reviews as it is told."""

    def __init__(self, *, authenticated=True, allowed=True, error=None):
        self.asked = []
        self._answers = {
            TOKEN_REVIEWS: {"authenticated": authenticated, "user": ADA},
            SUBJECT_ACCESS_REVIEWS: {"allowed": allowed},
        }
        self._error = error

    async def create(self, resource, body):
        self.asked.append((resource, body["spec"]))
        if self._error is not None:
            raise self._error
        return {"status": self._answers[resource]}


async def refusal(api, token="secret"):
    found = await UserReviewer(api).refuses(token, KEY)
    return None if found is None else (found.status, found.message)


async def test_the_right_is_asked_for_with_everything_the_token_says_of_the_user():
    api = Api()
    assert await refusal(api) is None
    assert api.asked[0] == (TOKEN_REVIEWS, {"token": "secret"})
    asked = api.asked[1][1]
    assert (asked["user"], asked["uid"], asked["groups"], asked["extra"]) == tuple(ADA.values())
    assert asked["resourceAttributes"] == {
        "namespace": "ns",
        "name": "t",
        "verb": "get",
        "group": "trainer.operator.kubeflow.org",
        "resource": "trainers",
    }


@pytest.mark.parametrize(
    ("api", "status", "said"),
    [
        (Api(authenticated=False), 401, "not known"),
        (Api(allowed=False), 403, "ada may not get Trainer t in namespace ns"),
        (Api(error=Forbidden("tokenreviews is forbidden", status=403, reason="Forbidden")), 503, "forbidden"),
        (
            Api(error=TransportError("connection refused", fault=TransportFault.CONNECT)),
            503,
            "cannot be asked for your rights now",
        ),
    ],
    ids=["unknown token", "no right", "we may not review", "API server away"],
)
async def test_a_refusal_says_why(api, status, said):
    found = await refusal(api)
    assert found[0] == status
    assert said in found[1]


async def test_a_huge_token_is_not_passed_on():
    """ATK7."""
    api = Api()
    assert (await refusal(api, "x" * (MAX_TOKEN + 1)))[0] == 401
    assert api.asked == []
