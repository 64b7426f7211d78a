"""Why weights did not come. Every message is one sentence, and says what would help if we know it.

    HubError
    ├── BadToken             the Secret has no token, or something that is none
    ├── AccessDenied         the hub wants a token, or another one, or its terms accepted
    ├── RepositoryNotFound   the hub has no such repository
    ├── RevisionNotFound     the repository has no such branch, tag or commit
    ├── FileNotFound         the commit has no such file, or none that is safe to load
    ├── HashMismatch         a file is not what the hub, or the Trainer, says that it is
    ├── CannotWrite          the volume has no room, or refuses to be written
    ├── BadAnswer            the hub said something that is not its API, or is not trusted
    └── Passing              may go by itself; the same request may be repeated
        ├── HubThrottled     the hub asks for fewer requests
        └── HubUnreachable   no answer, or a broken one

The class names are reasons of the condition WeightsVerified, so they are part of the interface.
"""

from __future__ import annotations


class HubError(Exception):
    """Base of everything that keeps weights from coming; the message is one sentence."""

    @property
    def told(self) -> str:
        """The error as the operator gets it: reason and sentence."""
        return "%s: %s" % (type(self).__name__, self)


class BadToken(HubError):
    """The Secret has no token, or something that is none."""


class AccessDenied(HubError):
    """The hub does not show the repository to this token, or to nobody without one."""


class RepositoryNotFound(HubError):
    """The hub has no such repository."""


class RevisionNotFound(HubError):
    """The repository has no such revision."""


class FileNotFound(HubError):
    """The commit has not what is asked for."""


class HashMismatch(HubError):
    """A file has another content, or another size, than it must have."""


class CannotWrite(HubError):
    """The volume has no room, or refuses to be written."""


class BadAnswer(HubError):
    """The hub said something that is not its API."""


class Passing(HubError):
    """Something that may go by itself; the request may be repeated."""

    pause: float = 0.0
    """Seconds that the hub asks to wait."""


class HubThrottled(Passing):
    """The hub asks for fewer requests."""

    def __init__(self, message: str, *, pause: float) -> None:
        super().__init__(message)
        self.pause = pause


class HubUnreachable(Passing):
    """There was no usable answer."""
