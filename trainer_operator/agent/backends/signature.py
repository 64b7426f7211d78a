"""AWS Signature Version 4 for S3: which bytes of a request are signed, and how. Pure; the specification is AWS's.

Every request is signed with the hash of its body, so the store refuses a body that was damaged on its way.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import Dict, Mapping, Sequence, Tuple
from urllib.parse import quote

from trainer_operator.agent.backends.protocol import Content

ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Keys:
    """What signs: an access key, with a token when it is a temporary one."""

    access: str
    secret: str
    token: str = ""


@dataclass(frozen=True)
class Unsigned:
    """A request before it is signed. `path` and the query are not encoded yet."""

    method: str
    host: str
    path: str
    query: Sequence[Tuple[str, str]]
    headers: Mapping[str, str]
    body: Content

    @property
    def target(self) -> str:
        """The request target as it is sent, which is also what is signed."""
        query = canonical_query(self.query)
        return encode_path(self.path) + ("?" + query if query else "")


def sign(request: Unsigned, keys: Keys, *, region: str, now: datetime) -> Dict[str, str]:
    """Return all headers of the signed request, those that were given included.

    Assumptions: `now` is UTC; the store refuses a time that is more than 15 minutes off.
    """
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    body_hash = hashlib.sha256(request.body).hexdigest()
    headers = {
        **request.headers,
        "Host": request.host,
        "X-Amz-Date": stamp,
        "X-Amz-Content-Sha256": body_hash,
    }
    if keys.token:
        headers["X-Amz-Security-Token"] = keys.token
    lines = sorted((name.lower(), " ".join(value.split())) for name, value in headers.items())
    names = ";".join(name for name, _ in lines)
    canonical = "\n".join(
        [
            request.method,
            encode_path(request.path),
            canonical_query(request.query),
            "".join("%s:%s\n" % line for line in lines),
            names,
            body_hash,
        ]
    )
    scope = "%s/%s/s3/aws4_request" % (stamp[:8], region)
    text = "\n".join([ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + keys.secret).encode()
    for part in (stamp[:8], region, "s3", "aws4_request"):
        key = _hmac(key, part)
    headers["Authorization"] = "%s Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
        ALGORITHM,
        keys.access,
        scope,
        names,
        _hmac(key, text).hex(),
    )
    return headers


def encode_path(path: str) -> str:
    """Encode a path once, as S3 does; slashes stay."""
    return quote(path, safe="/-_.~")


def canonical_query(query: Sequence[Tuple[str, str]]) -> str:
    """Encode and order a query."""
    return "&".join(
        "%s=%s" % pair
        for pair in sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query)
    )


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
