"""A pod's volumes on disk: fetches what they hold, writes it, and keeps it fresh.

Everything a pod names is read with the node's own credentials; the Node authorizer lets it read what its pods name
and nothing else.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping

from runtime.client.errors import NotFound
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.objects import (
    CONFIGMAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
    SERVICE_ACCOUNTS,
    JsonObject,
    key_of,
    uid_of,
)
from runtime.tasks import run_all
from trainer_operator.devcluster.node.attachments import Attachments
from trainer_operator.devcluster.node.environment import CONFIG_MAP, Contents, Facts, Source, Unresolved
from trainer_operator.devcluster.node.folders import PodFolders, host_folder, write_projected
from trainer_operator.devcluster.node.volumes import (
    Claim,
    EmptyFolder,
    HostFolder,
    Projected,
    TokenFile,
    Volume,
    attachable_name,
    claim_folder,
    files_of,
    sources_of_volumes,
    tokens_of,
    volumes_of,
)

ROOT_CERTIFICATES = Source(CONFIG_MAP, "kube-root-ca.crt")
REFRESH_SOURCES = 60.0
"""Seconds between two looks at mounted ConfigMaps and Secrets, as the kubelet's sync period."""
TOKEN_RENEWAL = 0.8
"""Share of its life after which a token is replaced, as at the kubelet."""


class PodStorage:
    """Volumes of one pod."""

    def __init__(
        self, client: Client, folders: PodFolders, *, pod: str, attachments: Attachments, clock: Clock
    ) -> None:
        """Prepare the storage of the pod with this uid."""
        self._client = client
        self._folders = folders
        self._pod = pod
        self._attachments = attachments
        self._clock = clock
        self._tokens: dict[TokenFile, tuple[str, float]] = {}
        self._paths: dict[str, str] | None = None
        self.refresh_at = math.inf
        """When `refresh` is due, on the monotonic clock."""

    async def prepare(self, pod: JsonObject, facts: Facts) -> Mapping[str, str]:
        """Make all volumes; return where each is. The second call returns what the first one made.

        Raises: Unresolved for what is missing or unknown; ApiError, TransportError.
        """
        if self._paths is None:
            volumes = volumes_of(pod)
            await self._write(pod, volumes, facts)
            paths = {}
            for name, volume in volumes.items():
                paths[name] = await self._place(key_of(pod).namespace, name, volume)
            self._paths = paths
        return self._paths

    async def refresh(self, pod: JsonObject, facts: Facts) -> None:
        """Write projected volumes again.

        Raises: as `prepare`; what is mounted stays as it was.
        """
        self.refresh_at = self._clock.monotonic() + REFRESH_SOURCES
        await self._write(pod, volumes_of(pod), facts)

    async def release(self) -> None:
        """Give back what was attached for the pod, whose processes have ended.

        Raises: ApiError, TransportError.
        """
        await self._attachments.release(self._pod)

    async def contents(self, namespace: str, sources: Iterable[Source]) -> Contents:
        """Read ConfigMaps and Secrets; one that does not exist is None.

        Raises: ApiError, TransportError.
        """
        wanted = list(sources)
        found = await run_all(*(self._content(namespace, source) for source in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _content(self, namespace: str, source: Source) -> dict[str, bytes] | None:
        resource = CONFIGMAPS if source.kind == CONFIG_MAP else SECRETS
        try:
            found = await self._client.get(resource, source.name, namespace)
        except NotFound:
            return None
        if source.kind != CONFIG_MAP:
            return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        return binary | {key: value.encode() for key, value in (found.get("data") or {}).items()}

    async def _write(self, pod: JsonObject, volumes: Mapping[str, Volume], facts: Facts) -> None:
        sources = sources_of_volumes(volumes)
        contents = await self.contents(key_of(pod).namespace, sources)
        for token in tokens_of(volumes):
            await self._ensure_token(pod, token)
        tokens = {token: value for token, (value, _) in self._tokens.items()}
        for name, volume in volumes.items():
            if isinstance(volume, Projected):
                files = files_of(volume, pod, facts=facts, contents=contents, tokens=tokens)
                write_projected(self._folders.volume(name), files)
        due = [renewal for _, renewal in self._tokens.values()]
        if sources - {ROOT_CERTIFICATES}:
            due.append(self._clock.monotonic() + REFRESH_SOURCES)
        self.refresh_at = min(due, default=math.inf)

    async def _ensure_token(self, pod: JsonObject, token: TokenFile) -> None:
        if token in self._tokens and self._clock.monotonic() < self._tokens[token][1]:
            return
        key = key_of(pod)
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [token.audience] if token.audience else [],
                "expirationSeconds": token.expiration_seconds,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": key.name,
                    "uid": uid_of(pod),
                },
            },
        }
        account = (pod.get("spec") or {}).get("serviceAccountName") or "default"
        answer = await self._client.create_subresource(
            SERVICE_ACCOUNTS, account, "token", body, key.namespace
        )
        renewal = self._clock.monotonic() + TOKEN_RENEWAL * token.expiration_seconds
        self._tokens[token] = (answer["status"]["token"], renewal)

    async def _place(self, namespace: str, name: str, volume: Volume) -> str:
        match volume:
            case EmptyFolder() | Projected():
                return str(self._folders.volume(name))
            case HostFolder():
                return host_folder(volume)
            case Claim():
                return await self._claim(namespace, volume)

    async def _claim(self, namespace: str, volume: Claim) -> str:
        try:
            claim = await self._client.get(PERSISTENT_VOLUME_CLAIMS, volume.name, namespace)
        except NotFound:
            raise Unresolved(f'persistentvolumeclaim "{volume.name}" not found') from None
        bound = (claim.get("spec") or {}).get("volumeName")
        persistent = await self._client.get(PERSISTENT_VOLUMES, bound) if bound else None
        folder = claim_folder(claim, persistent)
        if persistent is not None and (attachable := attachable_name(persistent)):
            await self._attachments.use(self._pod, attachable)
        return host_folder(HostFolder(folder))
