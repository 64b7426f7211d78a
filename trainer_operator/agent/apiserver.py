"""Whether the cluster's API server can be reached from this pod; the one thing an agent ever asks of it (AG8)."""

from __future__ import annotations

import http.client
import ssl
from typing import Tuple

ANSWER_TIME = 5.0


def is_reachable(address: Tuple[str, int], *, timeout: float = ANSWER_TIME) -> bool:
    """Ask for the version; any HTTP answer counts, a refusal too.

    Nothing secret is sent and nothing that comes back is used. The certificate is not checked, since pods of ours have
    no service account and so no authority to check it with; who imitates the server keeps a training from pausing.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(*address, timeout=timeout, context=context)
    try:
        connection.request("GET", "/version")
        return connection.getresponse().status > 0
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
