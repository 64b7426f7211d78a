"""The bearer token: where it comes from and when it is too old (K1).

A token file is re-read every 60 s with 10 s leeway, off the loop, because the kubelet rotates it under us. A file
that cannot be read leaves the old token in force. After a 401, a token older than the refused request is dropped.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.client.config import ClientConfig
from runtime.clock import Clock, parse_time
from runtime.errors import ConfigurationInvalid

__all__ = ["Credentials"]

_FILE_PERIOD = 60.0
_LEEWAY = 10.0
_EXEC_TIMEOUT = 60.0  # an interactive log-in may take its time; a hanging plugin must not hang us for ever


class Credentials:
    """Supplies the token for the next request, and serialises its renewal.

    Guarantees: files and plugins are read off the loop, by one caller at a time; what cannot be read any more leaves
    the last good token of a file in force.
    """

    def __init__(self, config: ClientConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = asyncio.Lock()
        self._token: str | None = config.token
        self._obtained_at: float | None = None
        self._valid_until = float("-inf") if config.token_file or config.exec_plugin else float("inf")

    async def token(self) -> str | None:
        """Return the token to send, renewing it when it is due.

        Raises: ConfigurationInvalid when there is no token at all and its source cannot be read.
        """
        if self._clock.monotonic() < self._valid_until:
            return self._token
        async with self._lock:
            if self._clock.monotonic() >= self._valid_until:
                await self._renew()
        return self._token

    def refused(self, *, sent_at: float) -> bool:
        """Note a 401 for a request sent at `sent_at`; tell whether trying again may help.

        A token obtained after that request was sent is not the one that was refused, and is kept.
        """
        if not (self._config.token_file or self._config.exec_plugin):
            return False
        if self._obtained_at is None or self._obtained_at <= sent_at:
            self._valid_until = float("-inf")
        return True

    async def _renew(self) -> None:
        now = self._clock.monotonic()
        if self._config.token_file:
            text = await asyncio.to_thread(_read_token, self._config.token_file)
            if text:
                self._token = text
            elif self._token is None:
                raise ConfigurationInvalid(f"token file {self._config.token_file} cannot be read or is empty")
            self._obtained_at = now
            self._valid_until = now + _FILE_PERIOD - _LEEWAY
        elif self._config.exec_plugin:
            status = await _run_plugin(self._config.exec_plugin)
            self._token = status.get("token")
            if not self._token:
                raise ConfigurationInvalid(
                    "exec plugin returned no token; client certificates are not supported"
                )
            self._obtained_at = now
            self._valid_until = now + self._lifetime(status) - _LEEWAY

    def _lifetime(self, status: Mapping[str, Any]) -> float:
        expires = status.get("expirationTimestamp")
        if not expires:
            return float("inf")
        return (parse_time(expires) - self._clock.utcnow()).total_seconds()


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


async def _run_plugin(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    # Imported here: the package takes more than a second, and only kubeconfigs with a plugin need it.
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.exec_provider import ExecProvider
    from kubernetes_asyncio.config.kube_config import ConfigNode

    try:
        async with asyncio.timeout(_EXEC_TIMEOUT):
            status: Mapping[str, Any] = await ExecProvider(ConfigNode("exec", dict(spec))).run()
    except (ConfigException, OSError, TimeoutError) as error:
        raise ConfigurationInvalid(
            f"exec plugin {spec.get('command')!r} failed: {error or 'timeout'}"
        ) from error
    return status
