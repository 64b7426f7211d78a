"""References to images as people write them: `python`, `ghcr.io/org/train:1`, `host:5000/train@sha256:...`. Pure."""

import re
from dataclasses import dataclass

DOCKER_HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
_HUB_ALIASES = frozenset({DOCKER_HUB, "index.docker.io", _HUB_HOST})
_HOST = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class BadReference(ValueError):
    """The text names no image; the message says why."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A registry, a repository in it, and which image of that."""

    registry: str
    """As it is written in references; `host` is where it is asked."""
    repository: str
    tag: str
    digest: str

    @property
    def host(self) -> str:
        """Host and port of the registry's API."""
        return _HUB_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def wanted(self) -> str:
        """What to ask the registry for; with both given the digest decides (IS3)."""
        return self.digest or self.tag

    def pinned(self, digest: str) -> str:
        """Return the reference to exactly what has this digest."""
        return f"{self.registry}/{self.repository}@{digest}"


def parse_reference(text: str) -> Reference:
    """Read a reference the way container runtimes do: no registry is Docker Hub, no tag is `latest`.

    Raises: BadReference.
    """
    name, _, digest = text.partition("@")
    if digest and not DIGEST.fullmatch(digest):
        raise BadReference(f"image {text!r}: only digests of the form sha256:<64 hex digits> are read")
    head, slash, rest = name.partition("/")
    if not slash or not (set(head) & set(".:[") or head == "localhost"):
        head, rest = DOCKER_HUB, name
    repository, colon, tag = rest.partition(":")
    registry = DOCKER_HUB if head in _HUB_ALIASES else head
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _HOST.fullmatch(registry) or not all(_PART.fullmatch(part) for part in repository.split("/")):
        raise BadReference(f"image {text!r} is no reference of the form [registry/]repository[:tag][@digest]")
    if colon and not _TAG.fullmatch(tag):
        raise BadReference(f"image {text!r}: the tag has up to 128 letters, digits, '_', '.' and '-'")
    return Reference(registry, repository, tag or "latest", digest)
