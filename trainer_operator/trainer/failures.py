"""What failed: crash, loss and their classes (DT1 to DT6).

`detect` is pure. A failure has a key, unique per incarnation, which status keeps when it is handled; the same
failure is therefore counted once, whatever restarts in between (RC4).
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from trainer_operator.topology.members import AgentView, MemberId
from trainer_operator.trainer import weightfiles
from trainer_operator.trainer.views import Observed, PodView

_NO_PYTHON = '"python3": executable file not found'
"""What runtimes say of a container whose first program is missing; crun and runc agree on it."""


class FailureClass(StrEnum):
    """Why a member stopped; `disruption` is charged to the disruption budget (DT2, RC3)."""

    APP = "app"
    OOM = "oom"
    CONFIG = "config"
    DISRUPTION = "disruption"
    STALL = "stall"
    STARTUP = "startup"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one incarnation of one member. `pod_gone`: its pod can't be used again."""

    member: MemberId
    key: str
    kind: FailureClass
    reason: str
    message: str
    pod_gone: bool
    exit_code: int | None = None
    node: str = ""
    """The node that is suspected, when the member was lost."""
    fingerprint: str = ""
    """Kind and place of the failure, if the program told them."""
    step: int = 0
    """Global step at which it happened."""


def lost_window(observed: Observed) -> float:
    """Return W, the silence after which a second source is asked (DT3)."""
    return observed.settings.lost_window(observed.heartbeat)


def in_grace(observed: Observed) -> bool:
    """Whether this leader is too young to judge silence (TX4)."""
    return observed.led_for < 2 * observed.heartbeat + 10.0


def detect(
    observed: Observed, member: MemberId, *, attempt: int, had_pod: bool, handled: str = ""
) -> Failure | None:
    """Return the failure of the member's current attempt, or None while it lives or has ended well."""
    pod = observed.pod(member, attempt)
    agent = current_agent(observed, member, pod, attempt)
    if agent is not None and agent.done:
        return None  # a success report beats every later pod event (ST2)
    if pod is None:
        if not had_pod:
            return None
        return Failure(
            member,
            f"{attempt}/pod",
            FailureClass.DISRUPTION,
            "PodDeleted",
            "the pod was deleted",
            pod_gone=True,
        )
    if pod.failed:
        return _of_failed_pod(member, pod, agent)
    if pod.phase == "Succeeded":
        return None
    if pod.terminating:
        return Failure(
            member,
            f"{attempt}/pod",
            FailureClass.DISRUPTION,
            "PodDeleted",
            f"pod {pod.name} is being deleted",
            pod_gone=True,
        )
    exited = _of_exit(member, pod, agent) if agent is not None and agent.crashed else None
    if exited is not None and exited.key != handled:
        return exited
    # An agent whose process ended must be alive to start it again, so silence is judged here as well.
    return _of_silence(observed, member, pod, agent)


def current_agent(
    observed: Observed, member: MemberId, pod: PodView | None, attempt: int
) -> AgentView | None:
    """Return the member's agent if it belongs to this attempt (and pod, where there is one)."""
    agent = observed.agents.get(member)
    if agent is None or agent.beat.attempt != attempt:
        return None
    if pod is not None and agent.beat.pod != pod.uid:
        return None
    return agent


def _of_failed_pod(member: MemberId, pod: PodView, agent: AgentView | None) -> Failure:
    if pod.disrupted:
        kind, reason = FailureClass.DISRUPTION, pod.reason or "Disrupted"
    elif pod.oom_killed:
        kind, reason = FailureClass.OOM, "OOMKilled"
    elif agent is None and _NO_PYTHON in pod.message:
        return _without_python(member, pod)
    elif pod.exit_code in {126, 127} and agent is None:
        kind, reason = FailureClass.CONFIG, "CannotExecute"
    elif pod.weights_problem:
        return _of_weights(member, pod)
    else:
        kind, reason = FailureClass.APP, pod.reason or "PodFailed"
    message = f"pod {pod.name} failed: {pod.message or reason}"
    if pod.exit_code is not None:
        message += f" (exit code {pod.exit_code})"
    return Failure(
        member, f"{pod.attempt}/pod", kind, reason, message[:512], pod_gone=True, exit_code=pod.exit_code
    )


def _without_python(member: MemberId, pod: PodView) -> Failure:
    """An image in which the agent cannot run; another try would end the same way (AG2; ADR 0016)."""
    return Failure(
        member,
        f"{pod.attempt}/pod",
        FailureClass.CONFIG,
        "NoPython",
        f"pod {pod.name} could not start, since its image has no python3 on its PATH, which the agent needs: "
        "use an image with Python 3.8 or newer, and see whether spec.env changes PATH",
        pod_gone=True,
        exit_code=pod.exit_code,
    )


def _of_weights(member: MemberId, pod: PodView) -> Failure:
    """Weights that did not come; what may go by itself has no exit code, so that restartPolicy ExitCode retries it."""
    reason, _, sentence = pod.weights_problem.partition(": ")
    return Failure(
        member,
        f"{pod.attempt}/pod",
        FailureClass.APP,
        reason,
        f"pod {pod.name}: {sentence}"[:512],
        pod_gone=True,
        exit_code=None if reason in weightfiles.PASSING else pod.exit_code,
    )


def _of_exit(member: MemberId, pod: PodView, agent: AgentView) -> Failure:
    ended = agent.beat.exit
    code, signal = (ended.code, ended.sig) if ended is not None else (1, 0)
    if code in {126, 127} and agent.beat.phase == "init":
        kind, reason = FailureClass.CONFIG, "CannotExecute"
    else:
        kind, reason = FailureClass.APP, "ProcessExited"
    how = f"signal {signal}" if signal else f"exit code {code}"
    message = f"the process of {pod.name} ended with {how} at step {agent.beat.step}"
    if ended is not None and ended.fingerprint:
        message += f": {ended.fingerprint[:160]}"
    return Failure(
        member,
        agent.beat.process,
        kind,
        reason,
        message,
        pod_gone=False,
        exit_code=128 + signal if signal else code,
        fingerprint=(ended.fingerprint or "")[:256] if ended is not None else "",
        step=agent.beat.step,
    )


def _of_silence(
    observed: Observed, member: MemberId, pod: PodView, agent: AgentView | None
) -> Failure | None:
    """Lost: silence, and a second source agrees; with a healthy node twice the window (DT3)."""
    if in_grace(observed) or not pod.node:
        return None
    window = lost_window(observed)
    if agent is None and pod.phase != "Running":
        node = observed.nodes.get(pod.node)
        if node is not None and not node.ready and observed.led_for > window:
            return _lost(member, pod, f"node {pod.node} is not ready and the pod never started")
        return None
    silence = agent.age if agent is not None else observed.led_for
    if silence <= window:
        return None
    node = observed.nodes.get(pod.node)
    confirmed = node is None or node.is_suspicious
    if observed.mass_silence and not confirmed:
        return None  # more likely it is us who hear nothing; only the API server's word counts then (DT4)
    if confirmed or _whole_node_is_silent(observed, pod.node, window):
        return _lost(
            member, pod, f"no word from {pod.name} for {silence:.0f} s and node {pod.node} is not healthy"
        )
    if silence > 2 * window and agent is not None:
        return replace(_lost(member, pod, f"no word from {pod.name} for {silence:.0f} s"), node="")
    return None


def _whole_node_is_silent(observed: Observed, node: str, window: float) -> bool:
    ages = [
        agent.age
        for member, agent in observed.agents.items()
        for pod in observed.pods.get(member, ())
        if pod.node == node and pod.uid == agent.beat.pod
    ]
    return len(ages) >= 2 and min(ages) > window


def _lost(member: MemberId, pod: PodView, message: str) -> Failure:
    return Failure(
        member, f"{pod.attempt}/pod", FailureClass.DISRUPTION, "Lost", message, pod_gone=True, node=pod.node
    )
