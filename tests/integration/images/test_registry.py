"""Entry points read from a registry over HTTP and HTTPS: every kind of manifest, tokens, redirects, and hostile answers."""

import asyncio
import json
import socket
import ssl
import threading
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from integration.images.registrydouble import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    TOKEN,
    RegistryDouble,
)
from runtime.tasks import TaskScope
from trainer_operator.devcluster.certificates import CertificateAuthority
from trainer_operator.images import EntryPoint, Registry, RegistryError, parse_reference, registry_url
from trainer_operator.images import registry as module
from trainer_operator.images.names import THREADS, NameThreads
from trainer_operator.images.registry import MAX_BYTES

NAME = "team/train"
CONFIG = {"Entrypoint": ["python3", "train.py"], "Cmd": ["--epochs", "5"], "Env": ["PATH=/usr/bin"]}


@pytest.fixture
async def double():
    async with RegistryDouble().serving() as made:
        yield made


async def read(double, *, name=NAME, tag=":1", known=None, context=None):
    reader = Registry((double.url,) if known is None else known, context=context)
    async with asyncio.timeout(60):
        return await reader.entry_point(parse_reference(f"{double.host}/{name}{tag}"))


def expected(digest):
    return EntryPoint(digest, ("python3", "train.py"), ("--epochs", "5"))


@pytest.mark.parametrize("kind", [DOCKER_MANIFEST, OCI_MANIFEST])
async def test_a_manifest_of_one_image_is_read(double, kind):
    """AG2."""
    digest = double.push(NAME, CONFIG, kind=kind)
    assert await read(double) == expected(digest)


@pytest.mark.parametrize("kind", [DOCKER_LIST, OCI_INDEX])
async def test_of_a_list_the_linux_image_is_read_and_the_list_is_pinned(double, kind):
    """AG2, IS4: nodes of another architecture need the list. Attestations are no images."""
    other = {"Entrypoint": ["other"]}
    platforms = {
        "unknown/unknown": other,
        "windows/amd64": other,
        "linux/arm64": other,
        "linux/amd64": CONFIG,
    }
    digest = double.push(NAME, None, kind=kind, platforms=platforms)
    assert await read(double) == expected(digest)


async def test_without_amd64_the_first_linux_image_is_read(double):
    """AG2."""
    digest = double.push(NAME, None, kind=OCI_INDEX, platforms={"linux/arm64": CONFIG})
    assert await read(double) == expected(digest)


async def test_an_image_is_read_by_its_digest(double):
    """AG2, IS3: with both, the digest decides."""
    digest = double.push(NAME, CONFIG)
    double.push(NAME, {"Entrypoint": ["newer"]})
    assert await read(double, tag=f":1@{digest}") == expected(digest)


async def test_over_https_the_certificate_is_checked(tmp_path):
    """NE3."""
    authority = CertificateAuthority.open(tmp_path)
    pair = authority.issue_server("registry", hosts=["127.0.0.1"], folder=tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pair.certificate, pair.key)
    async with RegistryDouble().serving(context=serving) as double:
        digest = double.push(NAME, CONFIG)
        trusting = ssl.create_default_context(cafile=str(authority.certificate_file))
        assert await read(double, known=(double.host,), context=trusting) == expected(digest)
        with pytest.raises(RegistryError, match="its certificate is not trusted"):
            await read(double, known=(double.host,))


async def test_a_token_for_pulling_is_asked_for_once_and_stays_with_the_registry(double):
    """AG2, NE4: a storage service that the registry redirects to gets none."""
    double.wants_token = True
    async with RegistryDouble().serving() as storage:
        digest = double.push(NAME, CONFIG)
        storage.push(NAME, CONFIG)
        double.blobs_at = storage.url
        assert await read(double, known=(double.url, storage.url)) == expected(digest)
        assert [path for path, _ in double.asked].count("/token") == 1
        assert double.asked[-1][1] == f"Bearer {TOKEN}"
        assert [token for _, token in storage.asked] == [None]


async def test_a_registry_that_wants_a_login_is_one_sentence(double):
    """AG2, RB2: the operator reads no pull secrets."""

    async def refuse(_request):
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="team"'})

    double.answers[f"/v2/{NAME}/manifests/1"] = refuse
    with pytest.raises(RegistryError, match="wants a login, and the operator reads no pull secrets"):
        await read(double)


async def test_an_image_that_is_not_there_is_one_sentence(double):
    """AG2."""
    with pytest.raises(RegistryError, match=r"does not know 1"):
        await read(double)


def answer(body, status=200, headers=None):
    async def handle(_request):
        return web.Response(body=body, status=status, headers=headers)

    return handle


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"\x00\xff", "the manifest is not JSON"),
        (b"[" * 100_000, "the manifest is not JSON"),
        (b"[]", "the manifest is not a JSON object"),
        (b'{"manifests": ["\\ud800"]}', "the manifest is not JSON"),
        (b'{"mediaType": "application/vnd.cncf.helm"}', "is not one of an image"),
        (b'{"manifests": []}', "has no image for Linux"),
        (
            b'{"manifests": [{"platform": {"os": "linux"}, "digest": "../../x"}]}',
            "a manifest has no sha256 digest",
        ),
        (b'{"config": {"digest": "sha512:00"}}', "the configuration has no sha256 digest"),
        (b'{"config": []}', "the configuration has no sha256 digest"),
    ],
)
async def test_a_malformed_manifest_is_one_sentence(double, body, sentence):
    """AG2: bad input gives one clear sentence."""
    double.answers[f"/v2/{NAME}/manifests/1"] = answer(body)
    with pytest.raises(RegistryError, match=sentence):
        await read(double)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "neither an ENTRYPOINT nor a CMD"),
        ({"Entrypoint": None, "Cmd": []}, "neither an ENTRYPOINT nor a CMD"),
        ({"Entrypoint": "train"}, "not a list"),
        ({"Entrypoint": ["x"] * 65}, "not a list of at most 64 words"),
        ({"Entrypoint": [5]}, "has a word that is no text"),
        ({"Entrypoint": ["x" * 4097]}, "has a word that is no text"),
        ({"Entrypoint": ["a\0b"]}, "has a word that is no text"),
        ({"Entrypoint": ["x" * 4096] * 5}, "more than 16384 characters"),
    ],
)
async def test_an_entry_point_that_is_none_is_one_sentence(double, config, sentence):
    """AG2."""
    double.push(NAME, config)
    with pytest.raises(RegistryError, match=sentence):
        await read(double)


async def test_what_does_not_match_its_digest_is_refused(double):
    """IS4: neither a manifest nor a configuration."""
    digest = double.push(NAME, CONFIG)
    double.answers[f"/v2/{NAME}/manifests/{digest}"] = answer(b'{"config": {}}')
    with pytest.raises(RegistryError, match="returned another manifest"):
        await read(double, tag=f"@{digest}")
    double.answers.clear()
    await read(double)
    blob = double.asked[-1][0]
    double.answers[blob] = answer(json.dumps({"config": {"Entrypoint": ["evil"]}}).encode())
    with pytest.raises(RegistryError, match="returned another configuration"):
        await read(double)


async def test_an_answer_without_end_is_cut_off(double):
    """IS11, NE6."""

    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b" " * 65536)
        except ConnectionError:
            return response

    double.answers[f"/v2/{NAME}/manifests/1"] = endless
    with pytest.raises(RegistryError, match=f"sent more than {MAX_BYTES} bytes"):
        await read(double)


async def test_redirects_have_an_end(double):
    """NE4: three."""
    path = f"/v2/{NAME}/manifests/1"
    double.answers[path] = answer(b"", 302, {"Location": path})
    with pytest.raises(RegistryError, match="redirects more than 3 times"):
        await read(double)
    assert len(double.asked) == 4


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_local_address_is_never_connected_to(double, host):
    """NE1, NE2, ATK16: whatever name leads to it, unless the administrator named the registry."""
    double.push(NAME, CONFIG)
    reader = Registry()
    port = double.host.rpartition(":")[2]
    with pytest.raises(RegistryError, match="is a local address"):
        await reader.entry_point(parse_reference(f"{host}:{port}/{NAME}:1"))
    assert double.asked == []


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("https://169.254.169.254/latest", "169.254.169.254 is a local address"),
        ("https://10.0.0.1/", "10.0.0.1 is a private address"),
        ("http://169.254.169.254/latest", "is not asked: only https"),
        ("ftp://127.0.0.1/", "is not asked: only https"),
        ("https://user:word@10.0.0.1/", "is not asked: only https"),
    ],
)
async def test_a_redirect_and_a_token_server_pass_the_same_guard(double, target, sentence):
    """NE4, ATK16."""
    double.answers[f"/v2/{NAME}/manifests/1"] = answer(b"", 302, {"Location": target})
    with pytest.raises(RegistryError, match=sentence):
        await read(double)
    double.answers.clear()
    double.wants_token, double.realm = True, target
    with pytest.raises(RegistryError, match=sentence):
        await read(double)


@asynccontextmanager
async def speaking(said):
    """Serve connections that get these bytes, whatever they asked; None keeps them open and silent."""
    over = asyncio.Event()

    async def answer_one(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            if said is None:
                await over.wait()
            else:
                writer.write(said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", "it closed the connection without an answer"),
        (b"\x00\xff\xfe SSH-2.0\r\n\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "it closed the connection without an answer|its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", "it broke off in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", "its answer is not HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "it broke off in the middle|its answer is not HTTP",
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nSet-Cookie: \x01=\x02\r\nContent-Length: 2\r\n\r\n{}", "."),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "answered 503"),
        (b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", r"answered 429 \(too many requests\)"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
            "redirects to what is no URL",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: file:///etc\r\nContent-Length: 0\r\n\r\n",
            "redirects to what is no URL",
        ),
        (
            b'HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer realm="http://[::"\r\nContent-Length: 0\r\n\r\n',
            "sends for a token to what is no URL",
        ),
    ],
    ids=range(13),
)
async def test_a_server_that_is_no_registry_is_one_sentence(said, sentence):
    """AG2: whatever it sends, nothing else than RegistryError comes out, since that would end the operator."""
    async with speaking(said) as host:
        with pytest.raises(RegistryError, match=sentence):
            await Registry((f"http://{host}",)).entry_point(parse_reference(f"{host}/{NAME}:1"))


async def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    """AG2."""
    monkeypatch.setattr(module, "_TIMEOUT", aiohttp.ClientTimeout(sock_read=0.1))
    async with speaking(None) as host:
        with pytest.raises(RegistryError, match="no answer in time"):
            await Registry((f"http://{host}",)).entry_point(parse_reference(f"{host}/{NAME}:1"))


async def test_a_server_that_refuses_connections_and_one_without_tls_are_one_sentence(double):
    """AG2."""
    with pytest.raises(RegistryError, match="does not speak TLS"):
        await read(double, known=(double.host,))
    async with speaking(b"") as host:
        pass
    with pytest.raises(RegistryError, match=r"[Rr]efused|Connect call failed"):
        await Registry((f"http://{host}",)).entry_point(parse_reference(f"{host}/{NAME}:1"))


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
async def test_a_name_that_is_none_is_one_sentence(host):
    """AG2."""
    with pytest.raises(RegistryError, match=f"registry {host} cannot be asked: "):
        await Registry().entry_point(parse_reference(f"{host}/{NAME}:1"))


async def test_name_servers_that_do_not_answer_hold_no_thread_of_the_event_loop():
    """AG2, AT1: the API server's token is read on those."""
    answering = threading.Event()

    def hang(*_arguments, **_options):
        answering.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no name server")

    names = NameThreads(hang)
    try:
        async with TaskScope() as scope:
            for number in range(THREADS + 40):
                scope.spawn(names.resolve(f"slow-{number}.example"), name=f"ask-{number}")
            async with asyncio.timeout(60):
                assert await asyncio.to_thread(lambda: "read") == "read"
            scope.cancel()
    finally:
        answering.set()
        await names.close()


@pytest.mark.parametrize(
    "wrong", ["", "http://", "https://registry.example", "registry.example/team", "a:b:c", "u@h"]
)
def test_a_known_registry_is_a_host_and_a_port(wrong):
    """NE3."""
    with pytest.raises(ValueError, match=r"."):
        registry_url(wrong)


async def test_a_known_registry_is_recognised_however_it_is_written(double):
    """NE3: host names have no case, and the port of the scheme may be left out."""
    digest = double.push(NAME, CONFIG)
    port = double.host.rpartition(":")[2]
    image = parse_reference(f"LOCALHOST:{port}/{NAME}:1")
    assert await Registry((f"http://Localhost:{port}",)).entry_point(image) == expected(digest)
    assert (
        str(Registry(("http://registry.example:80",)).url("registry.example:80"))
        == "http://registry.example/v2/"
    )
    assert Registry(("registry.example:443",)).url("registry.example").scheme == "https"
