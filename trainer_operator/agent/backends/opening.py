"""From the text in TRAINER_STORE to a Trainer's part of a store; opened at first use, and kept."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Callable, Optional

from trainer_operator.agent.backends.access import read_endpoint, read_keys
from trainer_operator.agent.backends.errors import BadAddress
from trainer_operator.agent.backends.file import FileStore
from trainer_operator.agent.backends.http import SignedClient
from trainer_operator.agent.backends.protocol import Store, check_key
from trainer_operator.agent.backends.retrying import RetryingStore
from trainer_operator.agent.backends.s3 import S3Store

S3 = "s3://"
ALLOWED = "an absolute directory or s3://bucket/prefix"


@dataclass(frozen=True)
class Home:
    """A Trainer's part of a store: the folder of its checkpoints, beside those of the namespace's other Trainers."""

    store: Store
    folder: str


OpenHome = Callable[[], Home]


class HomeOpener:
    """Opens a home at its first use; a failure is not kept, so that a corrected Secret is enough."""

    def __init__(self, address: str, credentials: str) -> None:
        self._address, self._credentials = address, credentials
        self._lock = threading.Lock()
        self._home: Optional[Home] = None

    def __call__(self) -> Home:
        """Return the home.

        Raises: BadAddress, BadKey, NoRights.
        """
        with self._lock:
            if self._home is None:
                self._home = open_home(self._address, credentials=self._credentials)
            return self._home


def check_address(address: str) -> None:
    """Check the form of an address without touching a store.

    Raises: BadAddress, BadKey.
    """
    _split(address)


def open_home(address: str, *, credentials: str = "") -> Home:
    """Open `<store>/<Trainer's folder>`; `credentials` is the folder of the mounted Secret.

    Raises: BadAddress, BadKey, NoRights.
    """
    root, folder = _split(address)
    if not root.startswith(S3):
        return Home(_patient(FileStore(root)), folder)
    bucket, _, prefix = root[len(S3) :].partition("/")
    read_keys(credentials)  # says now what is missing, and not in the middle of a checkpoint
    client = SignedClient(
        read_endpoint(credentials, bucket),
        keys=lambda: read_keys(credentials),
        now=lambda: datetime.now(timezone.utc),
    )
    return Home(_patient(S3Store(client, bucket=bucket, prefix=prefix)), folder)


def _patient(store: Store) -> Store:
    return RetryingStore(store, clock=time.monotonic, pause=time.sleep, rng=random.Random())


def _split(address: str) -> "tuple[str, str]":
    """Cut an address into the store's and the folder in it."""
    if not address:
        raise BadAddress("this pod has no store mounted")
    if address.startswith(S3):
        path = address[len(S3) :].rstrip("/")
        check_key(path)  # no part may climb (TN10)
        if "/" not in path:
            raise BadAddress("%r names a bucket, but no folder in it" % address[:80])
        return S3 + path.rpartition("/")[0], path.rpartition("/")[2]
    if not address.startswith("/") or "://" in address:
        raise BadAddress("%r names no store that this agent knows; it must be %s" % (address[:80], ALLOWED))
    root, _, folder = address.rstrip("/").rpartition("/")
    return root or "/", check_key(folder)
