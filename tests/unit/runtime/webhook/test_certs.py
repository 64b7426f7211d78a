"""The serving certificate is exchanged under a running server, and a bad one never is."""

import asyncio
import datetime as dt
import ssl

import pytest
from cryptography.hazmat.primitives import serialization

from runtime.clock import LoopClock, SystemClock
from runtime.errors import ConfigurationInvalid
from runtime.metrics import Metrics
from runtime.tasks import TaskScope
from runtime.testing.simloop import run_simulated
from runtime.webhook import CertificateWatcher, WebhookServer


@pytest.fixture
def other(authority, tmp_path):
    """Another pair for the same name."""
    folder = tmp_path / "other"
    folder.mkdir()
    return authority.issue_server("webhook", hosts=["127.0.0.1"], folder=folder)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def watcher(pair, metrics):
    return CertificateWatcher(pair.certificate, pair.key, clock=SystemClock(), metrics=metrics)


def errors(metrics):
    return metrics.registry.get_sample_value("certwatcher_read_certificate_errors_total")


async def served(port):
    """Return the certificate that a new handshake is shown, as DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return shown


def der(pair):
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


def encrypted(pair):
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    secret = serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)


async def test_a_new_pair_serves_new_handshakes_and_a_bad_one_none(
    authority, pair, other, watcher, metrics, tmp_path
):
    """CT5, ATK8: whatever is in the files, each handshake succeeds."""
    server = WebhookServer("127.0.0.1", 0, certificates=watcher, metrics=metrics)
    first, second = der(pair), der(other)
    await server.start()
    try:
        assert await served(server.port) == first
        assert watcher.check() is None
        past = dt.datetime.now(dt.UTC) - dt.timedelta(days=800)
        (tmp_path / "expired").mkdir()
        expired = authority.issue_server(
            "webhook", hosts=["127.0.0.1"], folder=tmp_path / "expired", now=past
        )
        bad = {
            "do not fit": (other.certificate.read_bytes(), pair.key.read_bytes()),
            "no PEM": (other.certificate.read_bytes()[:200], other.key.read_bytes()),
            "expired": (expired.certificate.read_bytes(), expired.key.read_bytes()),
            "fit together": (other.certificate.read_bytes(), encrypted(other)),
            "no PEM ": (b"", b""),
        }
        for number, (told, content) in enumerate(bad.items(), start=1):
            pair.certificate.write_bytes(content[0])
            pair.key.write_bytes(content[1])
            assert told.strip() in watcher.check()
            assert errors(metrics) == number
            assert await served(server.port) == first
        pair.certificate.write_bytes(other.certificate.read_bytes())
        pair.key.write_bytes(other.key.read_bytes())
        assert watcher.check() is None
        assert await served(server.port) == second
    finally:
        await server.stop()


def test_files_swapped_one_after_the_other_meet_in_the_end(pair, other, watcher):
    """CT5, ATK8: in either order."""
    watcher.load()
    pair.key.write_bytes(other.key.read_bytes())
    assert "do not fit" in watcher.check()
    pair.certificate.write_bytes(other.certificate.read_bytes())
    assert watcher.check() is None


def test_a_file_that_is_away_for_a_moment_changes_nothing(pair, watcher, metrics):
    """CT5."""
    watcher.load()
    content = pair.key.read_bytes()
    pair.key.unlink()
    assert "cannot be read" in watcher.check()
    pair.key.write_bytes(content)
    assert watcher.check() is None
    assert errors(metrics) == 1


def test_the_trigger_is_the_content_not_the_time(pair, watcher):
    """CT5: rewriting the same bytes is no exchange."""
    watcher.load()
    before = watcher.context.get_ca_certs(), watcher.context.cert_store_stats()
    pair.certificate.write_bytes(pair.certificate.read_bytes())
    assert watcher.check() is None
    assert (watcher.context.get_ca_certs(), watcher.context.cert_store_stats()) == before


def test_a_server_without_a_good_certificate_does_not_start(pair, watcher):
    """CT5: one sentence."""
    pair.certificate.write_text("nonsense")
    with pytest.raises(ConfigurationInvalid, match="no PEM certificate"):
        watcher.load()


def test_tls_below_1_2_is_refused(watcher):
    """CT5."""
    assert watcher.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_files_are_looked_at_from_time_to_time(pair, other, metrics):
    """CT5, P3."""

    async def scenario():
        watcher = CertificateWatcher(pair.certificate, pair.key, clock=LoopClock(), metrics=metrics)
        watcher.load()
        async with TaskScope() as scope:
            scope.spawn(watcher.run(), name="certificates")
            await LoopClock().sleep(25)
            scope.cancel()

    run_simulated(scenario())
    assert metrics.registry.get_sample_value("certwatcher_read_certificate_total") == 3
