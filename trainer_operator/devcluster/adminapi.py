"""A minimal blocking HTTPS client for the cluster's own set-up and health checks.

Not `runtime.client`: the control plane must be testable without what is tested on it, and a health check wants no
retries, no pools and no event loop.
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_operator.devcluster.certificates import KeyPair
from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.ports import LOOPBACK


@dataclass(frozen=True, slots=True)
class Answer:
    """Status code and body of one request."""

    status: int
    body: bytes

    def json(self) -> Any:  # Any: the JSON edge
        """Return the decoded body."""
        return json.loads(self.body)


class AdminAPI:
    """One identity's access to one loopback HTTPS server; a connection per request."""

    def __init__(self, port: int, *, authority: Path | None, client: KeyPair | None = None) -> None:
        """Trust `authority`; None trusts any server, which is enough to ask a loopback port for its health."""
        self.port = port
        if authority is None:
            self._context = ssl._create_unverified_context()  # noqa: S323 - the answer is a health code, no secret
        else:
            self._context = ssl.create_default_context(cafile=str(authority))
        if client is not None:
            self._context.load_cert_chain(client.certificate, client.key)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        timeout: float = 10.0,
        content_type: str = "application/json",
    ) -> Answer:
        """Send one request.

        Raises: ClusterFault when there is no answer.
        """
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, context=self._context, timeout=timeout)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": content_type})
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise ClusterFault(
                f"no answer from {LOOPBACK}:{self.port} to {method} {path}: {error}"
            ) from error
        finally:
            connection.close()

    def is_ok(self, path: str, *, timeout: float = 2.0) -> bool:
        """Tell whether a GET of this path is answered with 200 now."""
        try:
            return self.request("GET", path, timeout=timeout).status == http.client.OK
        except ClusterFault:
            return False
