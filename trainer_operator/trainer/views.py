"""What `decide` may see: frozen views of pods, agents, nodes and checkpoints, and the operator's settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runtime.objects import Resource
from trainer_operator.api.profile import TrainingProfileSpec
from trainer_operator.api.trainer import Trainer
from trainer_operator.images import EntryPoint
from trainer_operator.notify.routes import Services
from trainer_operator.topology.members import AgentView, MemberId
from trainer_operator.trainer.levels import BUILT_IN, Level
from trainer_operator.trainer.nodes import NodeView


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a member, as far as decisions need it."""

    name: str
    uid: str
    attempt: int
    phase: str = "Pending"
    node: str = ""
    has_address: bool = False
    ready: bool = False
    terminating: bool = False
    disrupted: bool = False  # condition DisruptionTarget, or a shutdown reason (DT2)
    reason: str = ""
    exit_code: int | None = None
    oom_killed: bool = False
    message: str = ""
    grace: int = 0
    """While it is being deleted: how many seconds its processes have for that, from the delete on."""
    created: str = ""
    """When it was made, as the API server writes it."""
    waits_reason: str = ""
    """Why it has no node yet, in the scheduler's word; empty before the scheduler looked at it."""
    waits_message: str = ""
    placement: str = ""
    """Which pods the scheduler was told to place it near to."""
    weights_pin: str = ""
    """What its init container found: repository, revision and commit, with blanks between them."""
    weights_problem: str = ""
    """Why its weights did not come: a reason, `: ` and a sentence."""

    @property
    def failed(self) -> bool:
        """Whether kubelet says that the pod ended badly."""
        return self.phase == "Failed"

    @property
    def alive(self) -> bool:
        """Whether the pod can still train."""
        return not self.terminating and self.phase in {"Pending", "Running", "Unknown"}


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim that this Trainer owns: whose it is, and which volume it is bound to."""

    name: str
    uid: str
    member: MemberId
    attempt: int
    volume: str = ""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class PodGroupView:
    """The PodGroup that a Trainer owns."""

    resource: Resource
    name: str
    uid: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    phase: str = ""
    message: str = ""
    """Why its scheduler cannot place it, if it says so."""


@dataclass(frozen=True, slots=True)
class NotebookView:
    """The notebook pod, as far as its condition tells of it."""

    name: str
    ready: bool
    waits: str = ""
    """Why its container does not run, in kubelet's word."""
    waits_message: str = ""
    failed: bool = False
    """Whether its container has ended, and is not ready again."""
    last_words: str = ""
    """The last line of the container that ended."""


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """A Checkpoint object of this Trainer."""

    name: str
    id: str
    step: int
    state: str
    health: str
    reason: str
    sequence: int
    committed_at: datetime | None = None
    aborted: bool = False
    staging: float | None = None
    """Once it is committed: how long that took."""
    discard: bool = False
    """The user wants it gone."""
    timeline: int = 0
    on_path: bool = True
    """Whether the present training came from it (CK6)."""
    store_id: str = ""
    pins: tuple[str, ...] = ()
    """Who reads it."""
    marked: bool = False
    """It was chosen for collection."""
    abort_reason: str = ""
    abort_message: str = ""

    @property
    def open(self) -> bool:
        """Whether its outcome is not decided yet."""
        return self.state in {"", "Pending", "Staging"} and not self.aborted


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator's administrator chooses for every Trainer. Durations are seconds."""

    operator_image: str = "trainer-operator:latest"
    """Image of the init container that brings the agent."""
    agent_urls: tuple[str, ...] = ()
    """Addresses of all replicas; agents use the one that leads."""
    agent_ca: str = ""
    """PEM bundle that agents trust."""
    hub: str = "https://huggingface.co"
    """Where weights come from."""
    allow_root: bool = False
    """Whether images may run as root; without it pods meet PodSecurity restricted (PS1)."""
    voluntary_interval: float = 60.0
    """At least this long between two epochs that nothing forced (ME6)."""
    lost_after: float = 10.0
    """Silence after which a member on a suspicious node is lost; the least value of W (DT3)."""
    status_interval: float = 5.0
    """At most one write per this time of what is no news: progress, counts (ST7)."""
    partial_after: float = 15.0
    """How long an epoch waits for more members once the minimum is there (ME3)."""
    checkpoint_timeout: float = 60.0
    """How long a voluntary change waits for its checkpoint."""
    node_recovery: bool = False
    """Whether pods and volumes of nodes that are down are freed by force; needs the opt-in rights (ND2, RB4)."""

    def lost_window(self, heartbeat: float) -> float:
        """Return W, the silence after which a second source is asked (DT3)."""
        return max(3 * heartbeat, self.lost_after)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything one decision is made from."""

    trainer: Trainer
    profile: TrainingProfileSpec | None
    pods: Mapping[MemberId, tuple[PodView, ...]]
    agents: Mapping[MemberId, AgentView]
    nodes: Mapping[str, NodeView]
    checkpoints: tuple[CheckpointView, ...]
    now: datetime
    entry_points: Mapping[str, EntryPoint | str] = field(default_factory=dict)
    """By image, what it runs by itself, or why that cannot be read; images that are still being read are not here."""
    levels: tuple[Level, ...] | str = BUILT_IN
    """The levels of topology, or why their configuration cannot be read."""
    node_labels: frozenset[str] = frozenset()
    """The labels that nodes have, for a Trainer that starts with a topologyPolicy."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """The domain of each node, while members wait for each other that must share one."""
    pod_group: PodGroupView | None = None
    pod_groups_fault: str = ""
    """Why the kind of PodGroup that its scheduler knows cannot be used, if it cannot."""
    notebook: NotebookView | None = None
    notebook_refusal: str = ""
    """Why the API server takes no notebook pod, if it does not."""
    claims: tuple[ClaimView, ...] = ()
    """The claims of its members."""
    has_service: bool = True
    """Whether its Service is there."""
    services: Services = field(default_factory=Services)
    """Where notifications can go, and what became of earlier ones."""
    attachments: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Name of the VolumeAttachment of (volume, node), of nodes with old pods."""
    heartbeat: float = 2.0
    led_for: float = 1e9
    """Seconds since this process took leadership (TX4)."""
    calm_for: float = 1e9
    """Seconds since a member of the epoch was last away: the clocks of the others stood still until then (DT6)."""
    mass_silence: bool = False
    """Whether so many agents are silent at once that our own fault is assumed (DT4)."""
    chance: float = 0.5
    """A random number in [0, 1) for jitter, drawn by the caller."""
    settings: Settings = field(default_factory=Settings)

    def pod(self, member: MemberId, attempt: int) -> PodView | None:
        """Return the pod of a member's attempt; None while there is none."""
        return next((pod for pod in self.pods.get(member, ()) if pod.attempt == attempt), None)
