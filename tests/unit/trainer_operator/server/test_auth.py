"""Authentication: a token is believed for the pod that it is bound to, and only while that pod lives."""

import asyncio

import msgspec
import pytest

from runtime.cache.projection import Pod
from runtime.client.errors import ApiError, Forbidden, TransportError, TransportFault
from runtime.objects import TOKEN_REVIEWS
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from trainer_operator.server.auth import (
    AUDIENCE,
    POD_UID,
    Authenticator,
    NotAMember,
    NotKnownYet,
    Unauthenticated,
)

HEADER = "Bearer token"
DOWN = TransportError("connection refused", fault=TransportFault.CONNECT)


def pod(uid="pod-1", name="t-worker-0"):
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns", "uid": uid}}, Pod)


def review(*, authenticated=True, audiences=(AUDIENCE,), uids=("pod-1",)):
    """A TokenReview's answer."""
    extra = {POD_UID: list(uids)} if uids else {}
    return {
        "status": {
            "authenticated": authenticated,
            "audiences": list(audiences),
            "user": {"username": "system:serviceaccount:ns:default", "extra": extra},
        }
    }


class Reviews:
    """The API server's TokenReview: answers as told, keeps what it was asked."""

    def __init__(self, answer=None):
        self.answer = answer if answer is not None else review()
        self.asked = []
        self.gate = None

    async def create(self, resource, body, **_):
        assert resource is TOKEN_REVIEWS
        self.asked.append(body["spec"])
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Case:
    """An authenticator with a clock, a pod cache and a TokenReview of its own."""

    def __init__(self, answer=None, **options):
        self.clock = SimClock()
        self.reviews = Reviews(answer)
        self.pods = {"pod-1": pod()}
        self.authenticator = Authenticator(self.reviews, self.pods.get, self.clock, **options)

    async def ask(self, header=HEADER):
        return await self.authenticator.pod_of(header)


async def test_a_bound_token_gives_its_live_pod_and_names_the_audience():
    """AA2, AA3."""
    case = Case()
    assert (await case.ask()).name == "t-worker-0"
    assert case.reviews.asked == [{"token": "token", "audiences": ["trainer-operator"]}]


@pytest.mark.parametrize(
    "header", [None, "", "token", "Basic dXNlcg==", "bearer token", "Bearer " + "x" * 17_000]
)
async def test_a_request_without_a_bearer_token_is_not_reviewed(header):
    case = Case()
    with pytest.raises(Unauthenticated):
        await case.ask(header)
    assert case.reviews.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        review(authenticated=False),
        review(audiences=()),
        review(audiences=("https://kubernetes.default.svc",)),
        {"status": {"authenticated": True, "user": {"extra": {POD_UID: ["pod-1"]}}}},
        {"status": {"error": "token expired"}},
        {"status": None},
        {},
    ],
    ids=[
        "refused",
        "no audience",
        "the API server's audience",
        "audiences absent",
        "error",
        "no status",
        "empty",
    ],
)
async def test_a_token_that_is_not_for_us_is_refused(answer):
    """AA2."""
    with pytest.raises(Unauthenticated):
        await Case(answer).ask()


@pytest.mark.parametrize("uids", [(), ("pod-1", "pod-2")], ids=["none", "two"])
async def test_a_token_without_exactly_one_pod_uid_speaks_for_no_member(uids):
    """AA3: a plain account token passes TokenReview."""
    with pytest.raises(NotAMember):
        await Case(review(uids=uids)).ask()


async def test_a_pod_that_is_not_cached_yet_is_asked_to_come_again():
    """AA5."""
    case = Case()
    del case.pods["pod-1"]
    with pytest.raises(NotKnownYet):
        await case.ask()
    case.pods["pod-1"] = pod()
    assert (await case.ask()).uid == "pod-1"
    assert len(case.reviews.asked) == 1


async def test_the_token_of_a_deleted_pod_is_worth_nothing_although_it_is_cached():
    """AA5: TokenReview says yes for seconds after the pod is gone."""
    case = Case()
    await case.ask()
    case.pods.clear()
    with pytest.raises(NotKnownYet):
        await case.ask()


async def test_a_review_is_believed_for_its_lifetime_and_then_made_again():
    """AA5."""
    case = Case()
    await case.ask()
    case.clock.advance(59.9)
    await case.ask()
    assert len(case.reviews.asked) == 1
    case.clock.advance(0.2)
    await case.ask()
    assert len(case.reviews.asked) == 2


async def test_a_token_that_is_refused_on_review_is_out_when_its_cache_entry_ends():
    """AA5."""
    case = Case()
    await case.ask()
    case.reviews.answer = review(authenticated=False)
    case.clock.advance(60.1)
    with pytest.raises(Unauthenticated):
        await case.ask()


@pytest.mark.parametrize(
    ("answer", "error"),
    [(review(authenticated=False), Unauthenticated), (review(uids=()), NotAMember)],
    ids=["refused", "no pod"],
)
async def test_a_refusal_is_kept_for_five_seconds(answer, error):
    """AA5: a flood of bad tokens is no flood of reviews."""
    case = Case(answer)
    for _ in range(3):
        with pytest.raises(error):
            await case.ask()
    assert len(case.reviews.asked) == 1
    case.clock.advance(5.1)
    case.reviews.answer = review()
    assert (await case.ask()).uid == "pod-1"


async def test_many_requests_with_one_token_are_one_review():
    """AA5: single flight."""
    case = Case()
    case.reviews.gate = asyncio.Event()
    found = []

    async def ask():
        found.append(await case.ask())

    async with TaskScope() as scope:
        for _ in range(20):
            scope.spawn(ask(), name="agent")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        case.reviews.gate.set()
    assert len(found) == 20
    assert len(case.reviews.asked) == 1


async def test_a_review_that_fails_is_taken_up_by_the_next_in_line():
    """AA5, AA6: nobody hangs on a flight that went down."""
    case = Case(DOWN)
    refused = []

    async def ask():
        try:
            await case.ask()
        except NotKnownYet:
            refused.append(1)

    async with TaskScope() as scope:
        for _ in range(3):
            scope.spawn(ask(), name="agent")
    assert len(refused) == 3


async def test_different_tokens_are_reviewed_apart():
    case = Case()
    await case.ask("Bearer one")
    await case.ask("Bearer two")
    assert [spec["token"] for spec in case.reviews.asked] == ["one", "two"]


@pytest.mark.parametrize(
    "down",
    [DOWN, ApiError("too busy", status=503), Forbidden("rbac", status=403)],
    ids=["unreachable", "busy", "forbidden"],
)
async def test_without_reviews_cached_identities_go_on_and_others_wait(down):
    """AA6."""
    case = Case()
    await case.ask("Bearer known")
    case.reviews.answer = down
    assert (await case.ask("Bearer known")).uid == "pod-1"
    with pytest.raises(NotKnownYet):
        await case.ask("Bearer unknown")


async def test_an_outage_never_prolongs_an_identity():
    """AA6: never fail open."""
    case = Case()
    await case.ask()
    case.reviews.answer = DOWN
    case.clock.advance(61)
    with pytest.raises(NotKnownYet):
        await case.ask()


async def test_an_outage_is_not_kept_as_a_refusal():
    """AA6."""
    case = Case(DOWN)
    with pytest.raises(NotKnownYet):
        await case.ask()
    case.reviews.answer = review()
    assert (await case.ask()).uid == "pod-1"


async def test_the_cache_is_bounded():
    """AA5."""
    case = Case(limit=3)
    for number in range(5):
        await case.ask(f"Bearer {number}")
    await case.ask("Bearer 4")
    assert len(case.reviews.asked) == 5
    await case.ask("Bearer 0")
    assert len(case.reviews.asked) == 6


async def test_no_error_repeats_the_token():
    case = Case(review(authenticated=False))
    with pytest.raises(Unauthenticated) as refused:
        await case.ask("Bearer top-secret")
    assert "top-secret" not in str(refused.value)
