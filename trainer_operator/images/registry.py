"""Reads an image's configuration from its registry (OCI distribution API), anonymously.

    manifest of the tag ──list or index──▶ manifest for linux/amd64, else the first for Linux ──▶ configuration
          └── 401 with a challenge: a token for pulling is asked for, once

The operator reads no Secrets of tenants, hence no credentials (RB2). Docker's and OCI's manifests and lists are read.
"""

import hashlib
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import orjson
from yarl import URL

from trainer_operator.images.guard import guarded_socket
from trainer_operator.images.names import NameThreads
from trainer_operator.images.reference import DIGEST, Reference

MAX_BYTES = 512 << 10
"""Of a manifest or a configuration: several times the largest that are in use, and the most hostile JSON of this size
takes a tenth of a second on the event loop."""
MAX_TOKEN_BYTES = 64 << 10
MAX_REDIRECTS = 3
MAX_WORDS = 64
MAX_WORD = 4096
MAX_TEXT = 16 << 10
"""Characters of an entry point: it is kept in the Trainer's status."""
LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE = re.compile(r'([a-z]+)="([^"]*)"')
_TIMEOUT = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0, sock_read=10.0)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
Json = dict[str, Any]


class RegistryError(Exception):
    """The configuration cannot be read; the message says why, in a part of a sentence."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """What an image runs by itself, and the digest of the image that says so."""

    digest: str
    command: tuple[str, ...]
    """ENTRYPOINT."""
    args: tuple[str, ...]
    """CMD, which a Trainer's own args replace."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Registry:
    """Asks registries.

    Guarantees: no credentials are sent; connections only to allowed addresses, over https unless the administrator
    listed the registry with http://; bounded size and number of answers; manifests and configurations that have a
    digest are what it says.
    """

    def __init__(self, known: tuple[str, ...] = (), *, context: ssl.SSLContext | None = None) -> None:
        """`known`: registries that the administrator listed, as `host[:port]` or `http://host[:port]`.

        Raises: ValueError for one that is written differently.
        """
        urls = [registry_url(each) for each in known]
        self._plain = {_authority(url) for url in urls if url.scheme == "http"}
        self._inside = {_authority(url) for url in urls}
        self._context = context
        self._names = NameThreads()

    async def entry_point(self, image: Reference) -> EntryPoint:
        """Read what an image runs by itself.

        Raises: RegistryError.
        """
        try:
            return await _Reading(self, image).run()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise RegistryError(f"registry {image.registry} cannot be asked: {_reason(error)}") from error

    def url(self, host: str) -> URL:
        """Return where a registry's API is."""
        plain = URL(f"http://{host}/v2/")
        return plain if _authority(plain) in self._plain else URL(f"https://{host}/v2/")

    @asynccontextmanager
    async def get(self, url: URL, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request on a connection of its own, so that every address passes the guard (NE1)."""
        host = _authority(url)
        if url.user is not None or url.scheme != ("http" if host in self._plain else "https"):
            raise RegistryError(
                f"{url.scheme}://{host} is not asked: only https, and no names or passwords in URLs"
            )
        connector = aiohttp.TCPConnector(
            ssl=self._context if self._context is not None else True,
            resolver=self._names,
            socket_factory=partial(guarded_socket, private=host in self._inside),
            force_close=True,
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=_TIMEOUT,
                trust_env=False,
                auto_decompress=False,
            ) as session,
            session.get(
                url, headers={**headers, "Accept-Encoding": "identity"}, allow_redirects=False
            ) as answer,
        ):
            yield answer


class _Reading:
    """One image's way to its configuration."""

    def __init__(self, registry: Registry, image: Reference) -> None:
        self._registry, self._image = registry, image
        self._token = ""
        self._root = registry.url(image.host) / image.repository

    async def run(self) -> EntryPoint:
        first, digest = await self._manifest(self._image.wanted)
        manifest = first
        if first.get("mediaType") in LISTS or "manifests" in first:
            manifest, _ = await self._manifest(_for_linux(first, self._image))
        config = _dict(manifest.get("config"))
        body = await self._blob(_digest(config.get("digest"), "the configuration"))
        run = _dict(_parse(body, "the configuration").get("config"))
        found = EntryPoint(digest, _words(run.get("Entrypoint")), _words(run.get("Cmd")))
        if not found.command and not found.args:
            raise RegistryError("the image has neither an ENTRYPOINT nor a CMD")
        if sum(map(len, (*found.command, *found.args))) > MAX_TEXT:
            raise RegistryError(f"its ENTRYPOINT and CMD have more than {MAX_TEXT} characters")
        return found

    async def _manifest(self, wanted: str) -> tuple[Json, str]:
        accept = ", ".join((*LISTS, *MANIFESTS))
        answer = await self._authorized(
            self._root / "manifests" / wanted, {"Accept": accept}, limit=MAX_BYTES
        )
        digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"  # ours, whatever its headers say (IS4)
        if DIGEST.fullmatch(wanted) and digest != wanted:
            raise RegistryError(f"registry {self._image.registry} returned another manifest than {wanted}")
        manifest = _parse(answer.body, "the manifest")
        if "manifests" not in manifest and "config" not in manifest:
            raise RegistryError(
                f"the manifest of type {str(manifest.get('mediaType'))[:80]!r} is not one of an image"
            )
        return manifest, digest

    async def _blob(self, digest: str) -> bytes:
        answer = await self._authorized(self._root / "blobs" / digest, {}, limit=MAX_BYTES)
        if f"sha256:{hashlib.sha256(answer.body).hexdigest()}" != digest:
            raise RegistryError(
                f"registry {self._image.registry} returned another configuration than {digest}"
            )
        return answer.body

    async def _authorized(self, url: URL, headers: Mapping[str, str], *, limit: int) -> _Answer:
        answer = await self._fetch(url, headers, limit=limit)
        if answer.status == 401 and not self._token:
            self._token = await self._pull_token(answer.headers.get("WWW-Authenticate", ""))
            answer = await self._fetch(url, headers, limit=limit)
        if answer.status == 200:
            return answer
        if answer.status in {401, 403}:
            raise RegistryError(
                f"registry {self._image.registry} wants a login, and the operator reads no pull secrets"
            )
        if answer.status == 404:
            raise RegistryError(f"registry {self._image.registry} does not know {self._image.wanted}")
        reason = {429: " (too many requests)"}.get(answer.status, "")
        raise RegistryError(f"registry {self._image.registry} answered {answer.status}{reason}")

    async def _fetch(self, url: URL, headers: Mapping[str, str], *, limit: int) -> _Answer:
        """Get one thing, over at most three redirects; the token stays with the registry (NE4)."""
        for _ in range(MAX_REDIRECTS + 1):
            is_ours = self._token and _authority(url) == _authority(self._root)
            own = {"Authorization": f"Bearer {self._token}"} if is_ours else {}
            async with self._registry.get(url, {**headers, **own}) as answer:
                target = answer.headers.get("Location")
                if answer.status in _REDIRECTS and target:
                    url = self._url(target, "redirects", base=url)
                    continue
                return _Answer(answer.status, dict(answer.headers), await _bounded(answer, limit))
        raise RegistryError(f"registry {self._image.registry} redirects more than {MAX_REDIRECTS} times")

    async def _pull_token(self, challenge: str) -> str:
        kind, _, rest = challenge.partition(" ")
        fields = dict(_CHALLENGE.findall(rest))
        if kind.lower() != "bearer" or "realm" not in fields:
            return ""
        query = {"scope": f"repository:{self._image.repository}:pull"}
        if "service" in fields:
            query["service"] = fields["service"]
        url = self._url(fields["realm"], "sends for a token").update_query(query)
        answer = await self._fetch(url, {}, limit=MAX_TOKEN_BYTES)
        if answer.status != 200:
            return ""
        told = _parse(answer.body, "the token")
        token = told.get("token") or told.get("access_token")
        return token if isinstance(token, str) and token.isascii() and token.isprintable() else ""

    def _url(self, text: str, verb: str, *, base: URL | None = None) -> URL:
        try:
            url = URL(text)
            url = url if base is None else base.join(url)
            if url.host and url.port:
                return url
        except ValueError:
            pass
        raise RegistryError(f"registry {self._image.registry} {verb} to what is no URL")


def _for_linux(index: Json, image: Reference) -> str:
    """Choose the manifest to read from a list: entry points hardly ever differ between architectures."""
    entries = index.get("manifests")
    found: list[tuple[bool, str]] = []
    for entry in entries if isinstance(entries, list) else ():
        platform = _dict(_dict(entry).get("platform"))
        if platform.get("os", "linux") == "linux":
            found.append(
                (
                    platform.get("architecture", "amd64") != "amd64",
                    _digest(_dict(entry).get("digest"), "a manifest"),
                )
            )
    if not found:
        raise RegistryError(f"{image.repository} has no image for Linux")
    return min(found, key=lambda each: each[0])[1]


async def _bounded(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(64 << 10):
        body += chunk
        if len(body) > limit:
            raise RegistryError(f"{answer.host} sent more than {limit} bytes")
    return bytes(body)


def _parse(body: bytes, what: str) -> Json:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RegistryError(f"{what} is not JSON") from error
    if not isinstance(parsed, dict):
        raise RegistryError(f"{what} is not a JSON object")
    return parsed


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _digest(value: object, what: str) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise RegistryError(f"{what} has no sha256 digest")
    return value


def _words(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_WORDS:
        raise RegistryError(f"the entry point is not a list of at most {MAX_WORDS} words")
    if not all(isinstance(word, str) and len(word) <= MAX_WORD and "\0" not in word for word in value):
        raise RegistryError(f"the entry point has a word that is no text of at most {MAX_WORD} characters")
    return tuple(value)


def registry_url(text: str) -> URL:
    """Read how an administrator writes a registry: `host[:port]`, with `http://` before one without TLS.

    Raises: ValueError.
    """
    url = URL(text if text.startswith("http://") else f"https://{text}")
    if not url.host or url.user is not None or url.raw_path_qs != "/" or "/" in text.removeprefix("http://"):
        raise ValueError(f"{text!r} is no registry of the form host[:port] or http://host[:port]")
    return url


def _authority(url: URL) -> str:
    """Return host and port as references write them."""
    host = url.host or ""
    name = f"[{host}]" if ":" in host else host
    return name if url.is_default_port() else f"{name}:{url.port}"


def _reason(error: BaseException) -> str:
    """Say what went wrong without repeating what a foreign server said."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not trusted"
        case aiohttp.ClientConnectorSSLError():
            return "it does not speak TLS as it should"
        case aiohttp.ClientConnectorError():  # a refused address too
            return error.os_error.strerror or str(error.os_error) or "no connection"
        case aiohttp.ServerDisconnectedError() | ConnectionError():
            return "it closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return "it broke off in the middle of its answer"
        case aiohttp.ClientResponseError():
            return "its answer is not HTTP"
        case OSError():
            return error.strerror or "no connection"
        case _:
            return "its name is no host name"
