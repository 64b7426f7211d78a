"""How to reach a bucket and with which keys: the files of the mounted Secret (TN1, TN3). The operator never reads them.

AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY    needed
AWS_SESSION_TOKEN                           for temporary keys
AWS_REGION                                  us-east-1 without one
AWS_ENDPOINT_URL                            another store than AWS, for example https://minio.storage:9000
ca.crt                                      PEM of the authority that signed the endpoint's certificate
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainer_operator.agent.backends.errors import BadAddress, NoRights
from trainer_operator.agent.backends.signature import Keys

ENDPOINT, REGION, AUTHORITY = "AWS_ENDPOINT_URL", "AWS_REGION", "ca.crt"
ACCESS, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
DEFAULT_REGION = "us-east-1"
_MAX_BYTES = 256 * 1024


@dataclass(frozen=True)
class Endpoint:
    """Where requests for one bucket go."""

    secure: bool
    host: str
    port: int
    path: str
    """What stands before the key: the bucket, unless it is part of the host."""
    region: str
    authority: str
    """PEM text; the system's authorities when empty."""

    @property
    def netloc(self) -> str:
        """The Host header."""
        host = "[%s]" % self.host if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else "%s:%d" % (host, self.port)


def read_endpoint(folder: str, bucket: str) -> Endpoint:
    """Find where a bucket is.

    Raises: BadAddress.
    """
    region = _read(folder, REGION) or DEFAULT_REGION
    url, authority = _read(folder, ENDPOINT), _read(folder, AUTHORITY)
    if not url:
        host = "s3.%s.amazonaws.com" % region
        if "." in bucket:  # a certificate covers one label only
            return Endpoint(True, host, 443, "/" + bucket, region, authority)
        return Endpoint(True, "%s.%s" % (bucket, host), 443, "", region, authority)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise BadAddress(
            "%s in the Secret is %r; it must be like https://host or http://host:9000" % (ENDPOINT, url[:80])
        )
    secure = parts.scheme == "https"
    path = parts.path.rstrip("/") + "/" + bucket
    return Endpoint(secure, parts.hostname, port or (443 if secure else 80), path, region, authority)


def read_keys(folder: str) -> Keys:
    """Read the keys as they are now: a Secret that is rotated needs no new pod.

    Raises: NoRights, naming what the Secret lacks.
    """
    access, secret = _read(folder, ACCESS), _read(folder, SECRET)
    if not access or not secret:
        raise NoRights(
            "the Secret of checkpoint.credentialsSecret has no %s; give it %s and %s"
            % (SECRET if access else ACCESS, ACCESS, SECRET)
        )
    return Keys(access, secret, _read(folder, TOKEN))


def _read(folder: str, name: str) -> str:
    """Return a file of the Secret without the space around it; empty when it is not there."""
    if not folder:
        return ""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read(_MAX_BYTES).strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise NoRights("%s of the mounted Secret cannot be read: %s" % (name, error)) from error
