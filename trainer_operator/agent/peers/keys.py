"""The key of one Trainer's epoch, and requests that are signed with it (FT17, TN6).

The operator makes a key for each epoch and tells it to the agents that it has authenticated; so whoever signs with it is
a member of this Trainer in this epoch. The key itself never travels between pods: a request carries a signature of what
it asks for, and who overhears one can only repeat it. No credential of the tenant is involved.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from typing import Tuple

CHUNKS = "/v1/chunks/"
"""Path of a chunk, up to its hash."""
SCHEME = "Trainer-Epoch "
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_KEPT = 2


def is_key(text: object) -> bool:
    """Whether a text has the form of a key."""
    return isinstance(text, str) and _KEY.match(text) is not None


def sign(key: str, *, trainer: str, epoch: int, path: str, part: str) -> str:
    """Return the value of `Authorization` for a part of a path."""
    text = "\n".join((trainer, str(epoch), path, part))
    return SCHEME + hmac.new(bytes.fromhex(key), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class Keys:
    """The keys that hold at the moment: those of the newest epoch.

    A leader that takes over makes a new key for the same epoch, of which agents hear at different times. So the last
    two hold; keys of an older epoch never do.
    """

    def __init__(self, trainer: str) -> None:
        self._trainer = trainer
        self._lock = threading.Lock()
        self._epoch = 0
        self._known: Tuple[str, ...] = ()

    def learn(self, epoch: int, key: str) -> None:
        """Take what the operator says; what is older or no key is passed over."""
        if not is_key(key):
            return
        with self._lock:
            if epoch < self._epoch:
                return
            known = self._known if epoch == self._epoch else ()
            if key not in known[:1]:
                self._epoch, self._known = epoch, ((key,) + tuple(k for k in known if k != key))[:_KEPT]

    def newest(self, epoch: int) -> str:
        """Return the key to sign with in an epoch; empty where none is known."""
        with self._lock:
            return self._known[0] if self._known and self._epoch == epoch else ""

    def allows(self, signature: str, *, path: str, part: str) -> bool:
        """Whether a request was signed by a member of this Trainer in the newest epoch."""
        with self._lock:
            epoch, known = self._epoch, self._known
        given = signature.encode("utf-8", "replace")
        good = (sign(key, trainer=self._trainer, epoch=epoch, path=path, part=part) for key in known)
        return any(hmac.compare_digest(given, each.encode()) for each in good)
