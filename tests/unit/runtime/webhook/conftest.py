"""A webhook server on loopback, and somebody who asks it."""

import contextlib
import io
import ssl

import aiohttp
import orjson
import pytest

from runtime.clock import SystemClock
from runtime.metrics import Metrics
from runtime.webhook import CertificateWatcher, WebhookServer
from trainer_operator.devcluster.certificates import CertificateAuthority


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return CertificateAuthority.open(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def pair(authority, tmp_path):
    return authority.issue_server("webhook", hosts=["127.0.0.1", "localhost"], folder=tmp_path)


class Asked:
    """A running server and a session that trusts it."""

    def __init__(self, server, session, metrics):
        self.server, self.session, self.metrics = server, session, metrics

    async def post(self, path, body, **headers):
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        url = f"https://127.0.0.1:{self.server.port}{path}"
        sent = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): headers[name] for name in headers
        }
        async with self.session.post(url, data=io.BytesIO(content), headers=sent) as answer:
            text = await answer.read()
            return answer.status, orjson.loads(text) if answer.status == 200 else text.decode()

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def serving(authority, pair):
    """Start a server that `prepare` has been given, and return who asks it."""

    @contextlib.asynccontextmanager
    async def serve(prepare):
        metrics = Metrics()
        certificates = CertificateWatcher(pair.certificate, pair.key, clock=SystemClock(), metrics=metrics)
        server = WebhookServer("127.0.0.1", 0, certificates=certificates, metrics=metrics)
        prepare(server)
        await server.start()
        trust = ssl.create_default_context(cafile=str(authority.certificate_file))
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
                yield Asked(server, session, metrics)
        finally:
            await server.stop()

    return serve
