"""Checkpoints in a bucket: the client against an S3 server, and against servers that answer badly or not at all."""

import contextlib
import itertools
import json
import socket
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from s3server import S3Server
from storecontract import StoreContract, patient
from trainer_operator.agent import collection, copying, index, packed, store
from trainer_operator.agent.backends import BadAddress, Home, NoRights, TooLarge, Unreachable, open_home
from trainer_operator.agent.backends.access import Endpoint
from trainer_operator.agent.backends.http import SignedClient
from trainer_operator.agent.backends.s3 import S3Store
from trainer_operator.agent.backends.signature import Keys

_numbers = itertools.count(1)
CKPT = "000000000040-e2-00ab"


@pytest.fixture(scope="module")
def server():
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def bucket(server):
    return server.make_bucket(f"bucket-{next(_numbers)}")


@pytest.fixture
def client(server):
    """Make clients of a server; all are closed at the end."""
    made = []

    def make(url=server.url):
        host, _, port = url.removeprefix("http://").partition(":")
        endpoint = Endpoint(False, host, int(port), "", "us-east-1", "")
        client = SignedClient(
            endpoint, keys=lambda: Keys("test", "test-secret"), now=lambda: datetime.now(UTC)
        )
        made.append(client)
        return client

    yield make
    for each in made:
        each.close()


def bucket_client(client, bucket):
    """Put the bucket before every key, as an endpoint's path does."""

    class InBucket:
        def send(self, method, key, **more):
            return client.send(method, f"{bucket}/{key}" if key else bucket, **more)

    return InBucket()


class TestS3Store(StoreContract):
    @pytest.fixture
    def store(self, client, bucket):
        return S3Store(bucket_client(client(), bucket), bucket=bucket, prefix="team/runs/ns", page=10)


def save(where, folder, data=b"0123456789"):
    sources = [packed.Source("w", "|u1", (len(data),), memoryview(data))]
    packed.write(str(folder / "source"), sources, step=40, ps_epoch=0, meta={})
    source = packed.read_header(str(folder / "source"))
    done = copying.write_copy(where, source, shard=0, copy=0, epoch=2)
    store.write_ack(where, 0, 0, ack=done.ack("pod", "node", step=40, epoch=2))
    return store.decide_commit(where, shards=1, copies=1, step=40, epoch=2, reason="Interval", nonce="n")


def test_a_checkpoint_is_saved_restored_and_collected_below_the_trainer_s_folder(server, bucket, tmp_path):
    """CK1, RS2, CS5, TN10: with the Secret as it is mounted."""
    credentials = server.secret(tmp_path / "secret")
    home = open_home(f"s3://{bucket}/team/ns/digits-01234567", credentials=credentials)
    identity = store.identify(home)
    where = store.CheckpointDir(home, CKPT)
    data = bytes(range(256)) * 70_000  # more than a chunk
    assert save(where, tmp_path, data).committed
    again = store.CheckpointDir(
        open_home(f"s3://{bucket}/team/ns/digits-01234567", credentials=credentials), CKPT
    )
    assert store.identify(again.home, expected=identity) == identity
    assert store.committed(again.home, step=40) == [CKPT]
    assert bytes(index.read_shard(again, 0)[1]["w"]) == data
    assert index.verify(again) == (len(data), [])
    assert all(key.startswith("team/ns/") for key in server.keys(bucket))
    assert collection.collect(again).objects == 4
    left = [key.rpartition("/")[2] for key in server.keys(bucket)]
    assert sorted(left) == ["DECISION", "GC", "STORE"]


def test_two_leaders_that_decide_at_once_get_one_outcome(server, bucket, tmp_path):
    """DE1, IV2, FC09: on the real protocol."""
    credentials = server.secret(tmp_path / "secret")
    outcomes = []
    for number in range(8):
        home = open_home(f"s3://{bucket}/ns/digits-01234567", credentials=credentials)
        where = store.CheckpointDir(home, f"{number:012d}-e2-00ab")
        barrier, found = threading.Barrier(4), []

        def decide(leader, where=where, barrier=barrier, found=found):
            barrier.wait(60)
            found.append(
                store.decide_abort(where, step=40, epoch=2, reason=f"by {leader}", nonce=str(leader))
            )

        threads = [threading.Thread(target=decide, args=(leader,)) for leader in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len({decision.digest for decision in found}) == 1
        outcomes.append(found[0].reason)
    assert len(outcomes) == 8


def test_a_bucket_that_is_not_there_is_one_sentence(server, tmp_path):
    """Bad input."""
    home = open_home("s3://no-such-bucket/ns/t-0123", credentials=server.secret(tmp_path / "secret"))
    with pytest.raises(BadAddress, match="bucket no-such-bucket does not exist"):
        store.identify(home)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass


@contextlib.contextmanager
def serving(answer):
    """Run an HTTP server whose every request is answered by a function of the handler."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def handle_any(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer(self)

        do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - names that the base class looks for

        def log_message(self, format, *args):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(handler, status, body=b"", *, length=None, close=False):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    if close:
        handler.send_header("Connection", "close")
        handler.close_connection = True
    handler.end_headers()
    handler.wfile.write(body)


def test_an_answer_that_breaks_off_is_no_answer(client):
    """CP12, CP14: a torn body is never taken for the object."""

    def torn(handler):
        reply(handler, 200, b"half", length=8, close=True)

    with serving(torn) as url, pytest.raises(Unreachable):
        S3Store(client(url), bucket="b", prefix="").get("key", limit=100)


def test_a_server_that_is_not_there_is_unreachable(client):
    """CP14."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(Unreachable, match="no answer from"):
            S3Store(client(url), bucket="b", prefix="").get("key", limit=100)


def test_a_create_whose_answer_was_lost_is_known_to_be_ours(client):
    """DE2: the effect came, the answer did not."""
    objects, cut = {}, [True]

    def answer(handler):
        key = handler.path
        if handler.command == "PUT" and handler.headers["If-None-Match"] == "*" and key in objects:
            reply(handler, 412)
        elif handler.command == "PUT":
            objects[key] = b"mine"
            if "record" in key and cut.pop():
                cut.append(False)
                handler.close_connection = True  # no answer at all
            else:
                reply(handler, 200)
        else:
            reply(handler, 200, objects.get(key, b"<DeleteResult/>"))

    with serving(answer) as url:
        patient(S3Store(client(url), bucket="b", prefix="")).create("record", b"mine")
    assert cut == [False]


def test_an_object_that_is_larger_than_asked_for_is_not_read(client):
    """CK5: a gigantic index costs at most its limit."""

    def endless(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**12))
        handler.end_headers()
        handler.close_connection = True
        with contextlib.suppress(OSError):
            for _ in range(64):
                handler.wfile.write(b"x" * 65536)

    with serving(endless) as url, pytest.raises(TooLarge, match="more than"):
        S3Store(client(url), bucket="b", prefix="").get("index", limit=1_000_000)


def test_a_connection_that_the_server_closed_meanwhile_costs_one_try(client):
    """BK: kept connections go stale."""

    def once(handler):
        reply(handler, 200, b"data")
        handler.close_connection = True  # without having said so

    with serving(once) as url:
        ours = patient(S3Store(client(url), bucket="b", prefix=""))
        assert [ours.get("key", limit=10) for _ in range(5)] == [b"data"] * 5


def test_keys_that_the_store_refuses_are_one_sentence(client):
    """PB4: no rights."""
    with serving(
        lambda handler: reply(handler, 403, b"<Error><Code>InvalidAccessKeyId</Code></Error>")
    ) as url:
        home = Home(patient(S3Store(client(url), bucket="b", prefix="ns")), "t-0123")
        with pytest.raises(
            NoRights, match=r"refuses STORE \(InvalidAccessKeyId\); check the keys in the Secret"
        ):
            store.identify(home)


def test_the_decision_in_the_bucket_is_what_a_file_would_hold(server, bucket, tmp_path):
    """CK: one layout, so that checkpoints can be copied between stores as they are."""
    credentials = server.secret(tmp_path / "secret")
    texts = []
    for address in (f"s3://{bucket}/ns/t-0123", str(tmp_path / "ns" / "t-0123")):
        where = store.CheckpointDir(open_home(address, credentials=credentials), CKPT)
        save(where, tmp_path)
        texts.append(where.store.get(where.record("DECISION"), limit=10_000))
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["outcome"] == "commit"
