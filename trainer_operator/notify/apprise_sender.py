"""Slack, Teams workflows and mail through apprise, in a thread that nothing waits for longer than its time (NT2, NE5).

apprise says only whether it worked, not why. So its plugins are given a session of ours in place of `requests`, which
remembers the answer's status and Retry-After, uses no proxy of the environment, and follows no redirect.
"""

import asyncio
import importlib
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainer_operator.notify.guard import guarded
from trainer_operator.notify.message import Message
from trainer_operator.notify.outcome import Delivered, Later, Outcome, of_http
from trainer_operator.notify.target import Target, TargetInvalid, read_target
from trainer_operator.notify.text import ESCAPES

NEVER = logging.CRITICAL + 1
_answer = threading.local()
_ready = threading.Lock()


class AppriseSender:
    """Sends to the URL in a file, which is read anew for each message, so that a changed Secret takes effect.

    Guarantees: one thread at a time; while one is stuck nothing else is tried. Credentials are in no message or log.
    """

    def __init__(self, url_file: Path, private_hosts: frozenset[str]) -> None:
        self._file = url_file
        self._private = private_hosts
        self._busy = False

    async def send(self, message: Message) -> Outcome:
        """Send one message.

        Cancellation: the thread goes on until its own timeouts end it; until then the next tries are put off.
        """
        if self._busy:
            return Later("the last try still hangs")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()
        self._busy = True

        def work() -> None:
            outcome = self._try(message)
            self._busy = False
            try:
                loop.call_soon_threadsafe(_resolve, done, outcome)
            except RuntimeError:
                return  # the loop has ended, and with it whoever waited

        threading.Thread(target=work, name="notify", daemon=True).start()
        return await done

    def _try(self, message: Message) -> Outcome:
        try:
            target = read_target(self._file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            return Later(f"{self._file} cannot be read: {type(error).__name__}")
        except TargetInvalid as error:
            return Later(f"{self._file}: {error}")
        try:
            return self._deliver(target, message)
        except (
            Exception
        ) as error:  # a third party's plugin: whatever it raises must not leave the queue stuck
            return Later(f"apprise failed with {type(error).__name__}")

    def _deliver(self, target: Target, message: Message) -> Outcome:
        apprise = _apprise()
        escape = ESCAPES[target.scheme]
        _answer.status, _answer.retry_after = None, None
        asset = apprise.AppriseAsset(
            http_redirects=False, app_id="Trainer Operator", storage_mode="memory", async_mode=False
        )
        server = apprise.Apprise.instantiate(target.url, asset=asset, suppress_exceptions=True)
        if server is None:
            return Later(f"{self._file}: apprise does not understand it")
        with guarded(private=target.hosts <= self._private) as refused:
            sent = server.notify(
                title=escape(message.title),
                body=escape(message.body),
                body_format=apprise.NotifyFormat.TEXT,
                notify_type=_KINDS[message.notice.trigger.severity.name],
            )
        if refused:
            return Later(refused[0])
        if sent:
            return Delivered()
        if _answer.status is not None:
            judged = of_http(_answer.status, _answer.retry_after)
            return Later("the destination did not take it") if isinstance(judged, Delivered) else judged
        return Later("no connection, or the server refused it")


_KINDS = {"Info": "info", "Warning": "warning", "Critical": "failure"}


def _resolve(done: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _apprise() -> Any:  # a third party's module, loaded by the first message: it costs most of a second
    import apprise

    with _ready:
        for name in ("apprise", "urllib3"):
            logging.getLogger(name).setLevel(NEVER)  # they tell URLs, which hold credentials
        import requests

        request = _requesting(requests)
        ours = SimpleNamespace(
            request=request,
            post=partial(request, "post"),
            get=partial(request, "get"),
            codes=requests.codes,
            RequestException=requests.RequestException,
        )
        for name in ("slack", "workflows"):
            setattr(importlib.import_module(f"apprise.plugins.{name}"), "requests", ours)  # noqa: B010 - a third party's
    return apprise


def _requesting(requests: Any) -> Callable[..., Any]:
    def request(method: str, url: str, **more: Any) -> Any:
        with requests.Session() as session:
            session.trust_env = False
            more |= {"allow_redirects": False, "verify": os.environ.get("SSL_CERT_FILE") or True}
            answer = session.request(method, url, **more)
        _answer.status = answer.status_code
        _answer.retry_after = answer.headers.get("Retry-After")
        return answer

    return request
