"""What really goes over the wire: apprise and the Alertmanager sender against doubles of the services."""

import email
import email.policy
import json
import logging
import socket
import threading
from datetime import UTC, datetime

import pytest

from integration.notify.receivers import HttpReceiver, MailReceiver, own_address
from simulation.cluster import trainer
from trainer_operator.devcluster.certificates import CertificateAuthority
from trainer_operator.notify.alertmanager import AlertmanagerSender
from trainer_operator.notify.apprise_sender import AppriseSender
from trainer_operator.notify.message import message
from trainer_operator.notify.notice import Notice
from trainer_operator.notify.outcome import Delivered, Later, Refused
from trainer_operator.notify.triggers import Trigger

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # apprise imports it
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = "<!channel> <at>boss</at> <script>x</script> [click](https://evil.example) *b*\r\nBcc: evil@example.com\x1b[31m"


def written(text=HOSTILE):
    return message(trainer(), Notice(Trigger.FAILED, "team", NOW, 1, "a", text), NOW, {})


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """A certificate for this machine's own address, by an authority that SSL_CERT_FILE names."""
    authority = CertificateAuthority.open(tmp_path / "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate_file))
    return authority.issue_server("receiver", hosts=[own_address()])


@pytest.fixture
def sender(tmp_path):
    def make(url, *, private=True):
        path = tmp_path / "url"
        path.write_text(url + "\n")
        return AppriseSender(path, frozenset({own_address()} if private else ()))

    return make


def flow(receiver):
    return f"workflows://{receiver.where}/flow1/hunter2"


async def test_a_message_reaches_a_workflow_with_tenants_text_as_text(pair, sender):
    """NT2, NT5: a card without mention, link or emphasis of the tenant."""
    async with HttpReceiver().serving(pair) as receiver:
        assert await sender(flow(receiver)).send(written()) == Delivered()
    ((_, body),) = receiver.took
    card = body["attachments"][0]["content"]
    assert card["msteams"] == {"width": "full"}, "nobody is mentioned"
    shown = " ".join(block["text"] for block in card["body"] if block["type"] == "TextBlock")
    assert "Trainer default/t: Failed" in shown
    assert not set(shown.replace("[Critical]", "")) & set("<>[]*\r\n\x1b")


async def test_an_answer_429_is_later_as_the_service_says(pair, sender):
    """NT4."""
    async with HttpReceiver().serving(pair) as receiver:
        receiver.answers = [(429, {"Retry-After": "77"}), (400, {}), (500, {})]
        sending = sender(flow(receiver))
        assert await sending.send(written()) == Later("the destination answers 429", 77.0)
        assert await sending.send(written()) == Refused("the destination answers 400")
        assert await sending.send(written()) == Later("the destination answers 500")


async def test_a_redirect_is_not_followed(pair, sender):
    """NE4."""
    async with HttpReceiver().serving(pair) as receiver:
        receiver.answers = [(307, {"Location": f"https://{receiver.where}/followed"})]
        assert await sender(flow(receiver)).send(written()) == Later("the destination answers 307")
        assert receiver.followed == []


async def test_a_private_address_that_is_not_listed_gets_no_connection(pair, sender):
    """NE2, ATK16."""
    async with HttpReceiver().serving(pair) as receiver:
        outcome = await sender(flow(receiver), private=False).send(written())
    assert isinstance(outcome, Later)
    assert "privateHosts" in outcome.why
    assert receiver.took == []


async def test_loopback_gets_no_connection_although_it_is_listed(tmp_path):
    """NE2: a listener there sees nobody, neither from apprise nor from the Alertmanager sender."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        path = tmp_path / "url"
        path.write_text(f"workflows://{where}/flow1/hunter2")
        listed = frozenset({"127.0.0.1"})
        for sending in (AppriseSender(path, listed), AlertmanagerSender(f"http://{where}", listed)):
            outcome = await sending.send(written())
            assert "local address" in outcome.why
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


async def test_a_certificate_that_nobody_trusts_is_no_delivery(pair, sender, monkeypatch):
    """NE3."""
    async with HttpReceiver().serving(pair) as receiver:
        monkeypatch.delenv("SSL_CERT_FILE")
        assert await sender(flow(receiver)).send(written()) == Later(
            "no connection, or the server refused it"
        )
    assert receiver.took == []


async def test_the_proxy_of_the_environment_is_not_used(pair, sender, monkeypatch):
    """NE3: trust_env is off."""
    monkeypatch.setenv("HTTPS_PROXY", "http://198.51.100.1:3128")
    async with HttpReceiver().serving(pair) as receiver:
        assert await sender(flow(receiver)).send(written()) == Delivered()


async def test_a_mail_has_no_header_of_a_tenant(pair, sender):
    """NT2, NT5: over TLS, one recipient, plain text."""
    async with MailReceiver().serving(pair) as receiver:
        host, port = receiver.where.split(":")
        url = f"mailtos://user:hunter2@{host}:{port}/ops@example.com?mode=ssl&from=trainer@example.com"
        assert await sender(url).send(written()) == Delivered()
    (raw,) = receiver.took
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert mail["Bcc"] is None
    assert mail["Subject"] == "[Critical] Trainer default/t: Failed"
    assert len(receiver.recipients) == 1
    text = mail.get_content() if not mail.is_multipart() else mail.get_body(("plain",)).get_content()
    assert "Bcc: evil@example.com" in text
    html = mail.get_body(("html",))
    assert html is None or "<script>" not in html.get_content()


async def test_a_mail_server_without_tls_gets_neither_mail_nor_password(pair, sender):
    """NT5: TLS is required."""
    heard = []
    with socket.create_server((own_address(), 0)) as server:

        def plain():
            connection, _ = server.accept()
            connection.settimeout(10)
            with connection, connection.makefile("rwb") as lines:
                lines.write(b"220 plain\r\n")
                lines.flush()
                for line in lines:
                    heard.append(line)
                    lines.write(b"221 bye\r\n" if line.startswith(b"QUIT") else b"250 plain\r\n")
                    lines.flush()

        server.settimeout(10)
        thread = threading.Thread(target=plain, daemon=True)
        thread.start()
        host, port = server.getsockname()
        url = f"mailtos://user:hunter2@{host}:{port}/ops@example.com?from=trainer@example.com"
        assert isinstance(await sender(url).send(written()), Later)
        thread.join(10)
    assert all(line[:4].upper() in {b"EHLO", b"HELO", b"QUIT", b"STAR"} for line in heard), heard


async def test_slack_gets_its_control_sequences_escaped(sender, monkeypatch):
    """NT2, NT5: the request that would go to hooks.slack.com, seen by a double of `requests`' session."""
    import requests

    seen = []

    def request(session, method, url, **more):
        seen.append((session.trust_env, url, more))
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"ok"
        return answer

    monkeypatch.setattr(requests.Session, "request", request)
    url = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops"
    assert await sender(url, private=False).send(written()) == Delivered()
    ((trusts, where, more),) = seen
    assert where.startswith("https://hooks.slack.com/services/")
    assert (trusts, more["allow_redirects"]) == (False, False)
    assert "<" not in json.dumps(json.loads(more["data"]))
    assert "&lt;!channel&gt;" in more["data"]


async def test_credentials_are_in_no_log_and_no_outcome(pair, sender, caplog):
    """RD2, ATK12: at debug level, with a destination that fails."""
    caplog.set_level(logging.DEBUG)
    async with HttpReceiver().serving(pair) as receiver:
        receiver.answers = [(500, {})]
        outcome = await sender(flow(receiver)).send(written())
    outcomes = [outcome, await sender("workflows://[hunter2").send(written())]
    outcomes.append(await sender(f"workflows://{own_address()}:1/flow1/hunter2").send(written()))
    assert "hunter2" not in caplog.text + repr(outcomes)


async def test_a_changed_secret_takes_effect_with_the_next_message(pair, tmp_path):
    path = tmp_path / "url"
    sending = AppriseSender(path, frozenset({own_address()}))
    assert await sending.send(written()) == Later(f"{path} cannot be read: FileNotFoundError")
    async with HttpReceiver().serving(pair) as receiver:
        path.write_text(flow(receiver))
        assert await sending.send(written()) == Delivered()


# -- Alertmanager


async def test_an_alert_has_labels_that_say_what_and_of_whom(pair):
    """NT6."""
    async with HttpReceiver().serving(pair) as receiver:
        sending = AlertmanagerSender(f"https://{receiver.where}", frozenset({own_address()}))
        assert await sending.send(written()) == Delivered()
    ((_, body),) = receiver.took
    (alert,) = body
    assert alert["labels"] == {
        "alertname": "TrainerFailed",
        "severity": "critical",
        "namespace": "default",
        "trainer": "t",
    }
    assert alert["startsAt"] == "2026-01-01T00:00:00Z"
    assert alert["annotations"]["key"] == "Failed/a/uid-t/team"


async def test_an_alertmanager_that_is_busy_away_or_redirects_is_asked_later(pair):
    """NT4, NE4."""
    async with HttpReceiver().serving(pair) as receiver:
        receiver.answers = [
            (429, {"Retry-After": "9"}),
            (302, {"Location": f"https://{receiver.where}/followed"}),
        ]
        sending = AlertmanagerSender(f"https://{receiver.where}", frozenset({own_address()}))
        assert await sending.send(written()) == Later("the destination answers 429", 9.0)
        assert await sending.send(written()) == Later("the destination answers 302")
        assert receiver.followed == []
    assert isinstance(await sending.send(written()), Later)


async def test_an_alertmanagers_token_comes_from_its_file(pair, tmp_path):
    token = tmp_path / "token"
    async with HttpReceiver().serving(pair) as receiver:
        sending = AlertmanagerSender(f"https://{receiver.where}", frozenset({own_address()}), token)
        assert isinstance(await sending.send(written()), Later)
        token.write_text("hunter2\n")
        assert await sending.send(written()) == Delivered()
