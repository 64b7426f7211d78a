"""Alerts for an Alertmanager, by its API v2 (NT6, NE1 to NE4)."""

import functools
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from runtime.clock import format_time
from trainer_operator.images.guard import guarded_socket
from trainer_operator.notify.guard import refusal
from trainer_operator.notify.message import Message
from trainer_operator.notify.outcome import Later, Outcome, of_http

TIMEOUT = 10.0


class AlertmanagerSender:
    """Posts one alert for each message; Alertmanager groups, silences and routes them by their labels."""

    def __init__(self, url: str, private_hosts: frozenset[str], token_file: Path | None = None) -> None:
        self._url = url.rstrip("/") + "/api/v2/alerts"
        self._private = (urlsplit(url).hostname or "") in private_hosts
        self._token_file = token_file

    async def send(self, message: Message) -> Outcome:
        """Post one alert."""
        headers = {}
        if self._token_file is not None:
            try:
                token = self._token_file.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                return Later(f"{self._token_file} cannot be read: {type(error).__name__}")
            headers["Authorization"] = f"Bearer {token}"
        connector = aiohttp.TCPConnector(
            socket_factory=functools.partial(guarded_socket, private=self._private, judge=refusal),
            ssl=ssl.create_default_context(),
            force_close=True,
        )
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, trust_env=False, timeout=timeout) as session,
                session.post(
                    self._url, json=[alert(message)], headers=headers, allow_redirects=False
                ) as answer,
            ):
                return of_http(answer.status, answer.headers.get("Retry-After"))
        except aiohttp.ClientConnectorError as error:
            return Later(str(error.os_error))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return Later(f"no answer: {type(error).__name__}")


def alert(message: Message) -> dict[str, object]:
    """Return the alert: labels say what and of whom, annotations are for people."""
    notice = message.notice
    return {
        "labels": {
            "alertname": f"Trainer{notice.trigger}",
            "severity": notice.trigger.severity.name.lower(),
            "namespace": message.namespace,
            "trainer": message.trainer,
        },
        "annotations": {"summary": message.title, "description": message.body, "key": message.key},
        "startsAt": format_time(notice.at),
    }
