"""A small registry: the reading half of the OCI distribution API on aiohttp, and ways to misbehave. A double."""

import hashlib
import json
from contextlib import asynccontextmanager

from aiohttp import web

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
TOKEN = "token-for-pulling"


def digest_of(body):
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


class RegistryDouble:
    """Images by repository and tag; `asked` has the path of each request and the token that came with it."""

    def __init__(self):
        self.asked = []
        self.wants_token = False
        self.realm = None
        self.blobs_at = None
        """Where requests for blobs are redirected to, as a storage service is by many registries."""
        self.answers = {}
        """Answers to paths instead of the right ones: handlers."""
        self._manifests = {}
        self._blobs = {}
        self._scheme, self.host = "http", ""

    def push(self, name, config, *, kind=DOCKER_MANIFEST, platforms=None, tag="1"):
        """Store an image, or with `platforms` (name to config) a list or index of images; return its digest."""
        if platforms is None:
            return self._put_manifest(name, self._image(config), kind, tag)
        entries = []
        for platform, each in platforms.items():
            system, _, architecture = platform.partition("/")
            single = DOCKER_MANIFEST if kind == DOCKER_LIST else OCI_MANIFEST
            digest = self._put_manifest(name, self._image(each), single, None)
            entries.append(
                {
                    "mediaType": single,
                    "digest": digest,
                    "size": 1,
                    "platform": {"os": system, "architecture": architecture},
                }
            )
        return self._put_manifest(name, {"schemaVersion": 2, "manifests": entries}, kind, tag)

    def _image(self, config):
        body = json.dumps({"architecture": "amd64", "os": "linux", "config": config}).encode()
        self._blobs[digest_of(body)] = body
        return {"schemaVersion": 2, "config": {"digest": digest_of(body), "size": len(body)}, "layers": []}

    def _put_manifest(self, name, manifest, kind, tag):
        body = json.dumps({**manifest, "mediaType": kind}).encode()
        for key in (digest_of(body), tag):
            if key is not None:
                self._manifests[name, key] = (kind, body)
        return digest_of(body)

    @asynccontextmanager
    async def serving(self, *, context=None, at=None):
        """Serve on a free port of the loopback address, or at a socket that is bound to one."""
        application = web.Application()
        application.router.add_get("/{path:.*}", self._get)
        runner = web.AppRunner(application, shutdown_timeout=1.0)
        await runner.setup()
        try:
            if at is None:
                site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            else:
                site = web.SockSite(runner, at, ssl_context=context)
            await site.start()
            self._scheme = "https" if context is not None else "http"
            self.host = f"127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    @property
    def url(self):
        return f"{self._scheme}://{self.host}"

    async def _get(self, request):
        path = request.path
        self.asked.append((path, request.headers.get("Authorization")))
        if path in self.answers:
            return await self.answers[path](request)
        if path == "/token":
            assert request.query["scope"].startswith("repository:")
            return web.json_response({"token": TOKEN})
        if self.wants_token and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            realm = self.realm or f"{self.url}/token"
            challenge = f'Bearer realm="{realm}",service="double",scope="repository:x:pull"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        name, kind, key = path.removeprefix("/v2/").rsplit("/", 2)
        if kind == "manifests" and (name, key) in self._manifests:
            media, body = self._manifests[name, key]
            assert media in request.headers["Accept"]
            return web.Response(body=body, headers={"Content-Type": media})
        if kind == "blobs" and self.blobs_at is not None:
            return web.Response(status=307, headers={"Location": f"{self.blobs_at}/v2/{name}/blobs/{key}"})
        if kind == "blobs" and key in self._blobs:
            return web.Response(body=self._blobs[key])
        return web.json_response({"errors": [{"code": "MANIFEST_UNKNOWN"}]}, status=404)
