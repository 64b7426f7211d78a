"""The store in a bucket: what each status means, and that no decision is made where conditions are ignored."""

import pytest

from storecontract import patient
from trainer_operator.agent.backends import (
    BadAddress,
    Conflict,
    Exists,
    Full,
    NoConditionalWrites,
    NoRights,
    NotFound,
    Throttled,
    Unreachable,
)
from trainer_operator.agent.backends.http import Answer
from trainer_operator.agent.backends.s3 import PROBE_INTERVAL, S3Store


class Scripted:
    """A client that answers from a list, and then as a store that obeys conditions."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []
        self.keys = set()

    def send(self, method, key, *, query=(), headers, body, limit):
        self.sent.append((method, key, dict(query), headers, body))
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            return answer
        if method == "PUT" and key in self.keys and "If-None-Match" in headers:
            return Answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
        if method == "PUT":
            self.keys.add(key)
        return Answer(200, {}, b"<DeleteResult/>" if method == "POST" else b"data")


def error(code, **more):
    return b"<Error><Code>%s</Code><Message>why</Message></Error>" % code.encode()


def store_with(*answers, clock=lambda: 0.0):
    client = Scripted(*answers)
    return S3Store(client, bucket="bucket", prefix="team/ns", clock=clock), client


@pytest.mark.parametrize(
    ("status", "body", "expected", "sentence"),
    [
        (404, error("NoSuchKey"), NotFound, "t/key does not exist in s3://bucket/team/ns/"),
        (404, error("NoSuchBucket"), BadAddress, "bucket bucket does not exist"),
        (404, b"", NotFound, "does not exist"),
        (412, error("PreconditionFailed"), Exists, "exists with another content"),
        (409, error("ConditionalRequestConflict"), Conflict, "neither is known to have won"),
        (409, error("OperationAborted"), Conflict, "neither is known to have won"),
        (403, error("AccessDenied"), NoRights, r"refuses t/key \(AccessDenied\); check the keys"),
        (403, error("SignatureDoesNotMatch"), NoRights, "SignatureDoesNotMatch"),
        (403, error("RequestTimeTooSkewed"), NoRights, "clock of this node is more than 15 minutes off"),
        (401, b"", NoRights, r"\(401\)"),
        (503, error("SlowDown"), Throttled, "asks for fewer requests"),
        (429, b"", Throttled, "asks for fewer requests"),
        (507, error("XMinioStorageFull"), Full, "has no room for t/key"),
        (403, error("QuotaExceeded"), Full, "has no room for t/key"),
        (
            301,
            error("PermanentRedirect"),
            BadAddress,
            "region of bucket bucket is another one; set AWS_REGION",
        ),
        (400, error("AuthorizationHeaderMalformed"), BadAddress, "set AWS_REGION"),
        (501, error("NotImplemented"), NoConditionalWrites, "does not know conditional writes"),
        (500, error("InternalError"), Unreachable, "answered 500 InternalError for t/key"),
        (502, b"<html>not xml", Unreachable, "answered 502"),
        (200, None, None, None),
    ],
)
def test_a_status_means_one_thing(status, body, expected, sentence):
    """DE2, FC09, CP14, PB4: 409 is "try again", never "exists"."""
    store, _ = store_with(Answer(status, {}, body or b"data"))
    if expected is None:
        assert store.get("t/key", limit=10) == b"data"
        return
    with pytest.raises(expected, match=sentence):
        store.get("t/key", limit=10)


def test_the_region_that_the_store_names_is_told():
    """One sentence that helps."""
    store, _ = store_with(Answer(301, {"x-amz-bucket-region": "eu-west-3"}, b""))
    with pytest.raises(BadAddress, match="is eu-west-3; set AWS_REGION in the Secret"):
        store.get("key", limit=1)


def test_conditions_are_proved_before_the_first_create_and_once_a_day():
    """BK2."""
    now = [0.0]
    store, client = store_with(clock=lambda: now[0])
    store.create("t/a", b"1")
    puts = [key for method, key, *_ in client.sent if method == "PUT"]
    assert puts[0] == puts[1]
    assert puts[0].startswith("team/ns/probe/")
    assert puts[2] == "team/ns/t/a"
    assert [method for method, *_ in client.sent] == ["PUT", "PUT", "POST", "PUT"]
    for name in ("b", "c"):
        store.create(f"t/{name}", b"1")
    assert len(client.sent) == 6
    now[0] = PROBE_INTERVAL
    store.create("t/d", b"1")
    assert len(client.sent) == 10


def test_where_conditions_are_ignored_nothing_is_created():
    """BK2: both creates of one key succeed."""
    store, client = store_with(Answer(200, {}, b""), Answer(200, {}, b""))
    with pytest.raises(NoConditionalWrites, match="ignores If-None-Match"):
        store.create("t/a", b"1")
    assert "team/ns/t/a" not in [key for _, key, *_ in client.sent]
    assert store._proved_at is None


def test_a_probe_that_failed_proves_nothing():
    """BK2: it is made again with the next create."""
    store, client = store_with(Answer(500, {}, b""))
    with pytest.raises(Unreachable):
        store.create("t/a", b"1")
    assert client.keys == set()
    patient(store).create("t/a", b"1")
    assert "team/ns/t/a" in client.keys


def test_every_create_is_conditional():
    """DE1."""
    store, client = store_with()
    store.create("t/a", b"1")
    store.put("t/b", b"1")
    conditional = {
        key: "If-None-Match" in headers for method, key, _, headers, _ in client.sent if method == "PUT"
    }
    assert conditional.pop("team/ns/t/b") is False
    assert all(conditional.values())


def test_a_delete_that_was_refused_for_one_key_is_an_error():
    """GC5: what was not deleted is not counted as deleted."""
    refused = b"<DeleteResult><Error><Key>team/ns/a</Key><Code>AccessDenied</Code></Error></DeleteResult>"
    store, _ = store_with(Answer(200, {}, refused))
    with pytest.raises(NoRights, match="does not allow to delete team/ns/a"):
        store.delete_many(["a", "b"])
    store, _ = store_with(Answer(200, {}, refused.replace(b"AccessDenied", b"InternalError")))
    with pytest.raises(Unreachable, match="did not delete"):
        store.delete_many(["a", "b"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not xml",
        b"<ListBucketResult><Contents><Key>team/ns/a</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>team/ns/a</Key><Size>big</Size></Contents></ListBucketResult>",
    ],
)
def test_a_listing_that_cannot_be_read_is_no_empty_listing(body):
    """CK5, GC4: an empty live set would delete everything."""
    store, _ = store_with(Answer(200, {}, body))
    with pytest.raises(Unreachable):
        store.list("")
