"""What the operator tells the agent through the pod's environment, read once at the start (PS4: users cannot set it)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from trainer_operator.agent.backends import StoreError
from trainer_operator.agent.backends.opening import check_address

JANITOR = "janitor"
"""Role of an agent without a training process: it does the store's work while no member runs."""
ROLES = ("worker", "ps", "master", JANITOR)


class BadSettings(Exception):
    """A variable is missing or malformed; the message names it and what is allowed."""


@dataclass(frozen=True)
class Identity:
    """Which member this agent speaks for: (Trainer uid, role, index, attempt), never a name alone."""

    name: str
    namespace: str
    uid: str
    role: str
    index: int
    attempt: int
    pod_name: str
    pod_uid: str
    node: str

    @property
    def trainer(self) -> str:
        """The Trainer as `namespace/name`."""
        return "%s/%s" % (self.namespace, self.name)


@dataclass(frozen=True)
class Settings:
    """Everything that does not change while the agent lives. Durations are seconds."""

    identity: Identity
    urls: Tuple[str, ...]
    """Base URLs of the operator's replicas; only the leader answers."""
    ca: str
    """PEM text of the authority that signed the operator's certificate."""
    token_file: str
    store: str
    """Where this Trainer's checkpoints are: an absolute directory or s3://…; empty without one."""
    store_credentials: str
    """Folder of the mounted Secret with the keys of the store; empty without one."""
    folder: str
    """Where agent.pyz and trainer_sdk.py lie; the socket, spool and ring are made here."""
    pod_ip: str
    port: int
    """Port of the probes."""
    grace: float
    """terminationGracePeriodSeconds of the pod."""
    termination_log: str
    stop_budget: float = 5.0
    """Between SIGTERM and SIGKILL when an older epoch ends: the others wait at the barrier for it."""
    linger: float = 600.0
    """How long the agent outlives its process without hearing from the operator (AG7)."""
    api_server: Optional[Tuple[str, int]] = None
    """Where Kubernetes says that its API server is; None if it does not, then nothing is ever paused (AG8)."""
    lost_after: float = 10.0
    """The least silence after which a member counts as lost (DT3)."""

    @property
    def ring_folder(self) -> str:
        """Where a parameter server's snapshots lie."""
        return os.path.join(self.folder, "ring")

    @property
    def cache_folder(self) -> str:
        """Where chunks of the last checkpoints are kept for a restore in the same pod."""
        return os.path.join(self.folder, "cache")

    @property
    def roster_file(self) -> str:
        """Where the agent leaves for its process which peers may be asked for chunks."""
        return os.path.join(self.folder, "peers.json")

    @property
    def spool_folder(self) -> str:
        """Where the SDK hands over the data of a checkpoint."""
        return os.path.join(self.folder, "spool")


def read_settings(environment: Mapping[str, str], *, folder: str) -> Settings:
    """Read the settings.

    Raises: BadSettings.
    """
    urls = tuple(
        url.strip().rstrip("/")
        for url in environment.get("TRAINER_OPERATOR_URLS", "").split(",")
        if url.strip()
    )
    for url in urls:
        if not url.startswith("https://"):
            raise BadSettings(
                "TRAINER_OPERATOR_URLS holds %r; only https:// is allowed, since a token travels" % url
            )
    store = environment.get("TRAINER_STORE", "")
    if store:
        try:
            check_address(store)
        except StoreError as error:
            raise BadSettings("TRAINER_STORE: %s" % error) from error
    role = _text(environment, "TRAINER_ROLE")
    if role not in ROLES:
        raise BadSettings("TRAINER_ROLE is %r; allowed are %s" % (role, ", ".join(ROLES)))
    identity = Identity(
        name=_text(environment, "TRAINER_NAME"),
        namespace=_text(environment, "TRAINER_NAMESPACE"),
        uid=_text(environment, "TRAINER_UID"),
        role=role,
        index=_whole(environment, "TRAINER_INDEX", 0),
        attempt=_whole(environment, "TRAINER_ATTEMPT", 0),
        pod_name=environment.get("TRAINER_POD_NAME", ""),
        pod_uid=_text(environment, "TRAINER_POD_UID"),
        node=environment.get("TRAINER_NODE_NAME", ""),
    )
    return Settings(
        identity=identity,
        urls=urls,
        ca=environment.get("TRAINER_OPERATOR_CA", ""),
        token_file=environment.get("TRAINER_TOKEN_FILE", "/var/run/secrets/trainer-operator/token"),
        store=store,
        store_credentials=environment.get("TRAINER_STORE_CREDENTIALS", ""),
        folder=environment.get("TRAINER_AGENT_FOLDER") or folder,
        pod_ip=environment.get("TRAINER_POD_IP") or "127.0.0.1",
        port=_whole(environment, "TRAINER_AGENT_PORT", 29390),
        grace=float(_whole(environment, "TRAINER_GRACE_SECONDS", 30)),
        termination_log=environment.get("TRAINER_TERMINATION_LOG") or "/dev/termination-log",
        linger=float(_whole(environment, "TRAINER_LINGER_SECONDS", 600)),
        api_server=_api_server(environment),
        lost_after=float(_whole(environment, "TRAINER_LOST_SECONDS", 10)),
    )


def _api_server(environment: Mapping[str, str]) -> Optional[Tuple[str, int]]:
    host = environment.get("KUBERNETES_SERVICE_HOST", "").strip().strip("[]")
    return (host, _whole(environment, "KUBERNETES_SERVICE_PORT", 443)) if host else None


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise BadSettings("%s is not set; the operator sets it in the pods that it creates" % name)
    return value


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    raw = environment.get(name, "").strip()
    if not raw:
        return default
    if not raw.isdigit():
        raise BadSettings("%s is %r; it must be a whole number, 0 or more" % (name, raw[:32]))
    return int(raw)
