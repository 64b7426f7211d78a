"""What agents answered to the store operations of one checkpoint, whoever of them carried them out. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from trainer_operator.checkpoint import orders
from trainer_operator.checkpoint.state import Outcome
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.members import AgentView, Directive


@dataclass(frozen=True, slots=True)
class Answers:
    """The results that agents keep, members' and the janitor's."""

    agents: tuple[AgentView, ...]
    ckpt: str
    """Id of the checkpoint that is asked about."""

    @classmethod
    def of(cls, ckpt: str, *agents: Iterable[AgentView]) -> "Answers":
        """Collect the answers of several groups of agents."""
        return cls(tuple(agent for group in agents for agent in group), ckpt)

    def decision(self) -> dict[str, Any] | None:
        """Return what an agent read of the DECISION after it, or somebody before it, wrote one (DE1)."""
        for outcome in (Outcome.COMMIT, Outcome.ABORT):
            found = self._done(orders.store_id(outcome, self.ckpt))
            if found is not None:
                return found.value if isinstance(found.value, dict) else None
        return None

    def outcome(self) -> Outcome | None:
        """Return what the store says became of it."""
        value = (self.decision() or {}).get("outcome")
        return Outcome(value) if isinstance(value, str) and value in {"commit", "abort"} else None

    def reason(self) -> str | None:
        """Return why it was decided so."""
        reason = (self.decision() or {}).get("reason")
        return str(reason)[:64] if reason else None

    def differing(self) -> tuple[str, ...]:
        """Return the tensors that the checkpoint's audit found changed unnoticed (FZ2)."""
        found = (self.decision() or {}).get("differing")
        return tuple(str(name)[:128] for name in found) if isinstance(found, list) else ()

    def is_collected(self) -> bool:
        """Whether an agent finished the collection."""
        return self._done(orders.store_id("collect", self.ckpt)) is not None

    def unknown(self) -> tuple[str, ...]:
        """Return what the agent that collected it found in the store that is not ours (GC7)."""
        done = self._done(orders.store_id("collect", self.ckpt))
        found = done.value.get("unknown") if done is not None and isinstance(done.value, dict) else None
        return tuple(str(name)[:128] for name in found) if isinstance(found, list) else ()

    def failed_tries(self, directive: str) -> int:
        """Return how often agents failed at a store operation."""
        return len(self.errors(directive))

    def errors(self, directive: str) -> list[str]:
        """Return what agents said of the tries of a store operation that failed."""
        return [
            answer.error or ""
            for agent in self.agents
            for name, answer in agent.results.items()
            if not answer.ok and name.partition("#")[0] == directive
        ]

    def again(self, directive: Directive) -> Directive:
        """Give a store operation that failed another id, so that it is tried again (MG1)."""
        failed = self.failed_tries(directive.id)
        return replace(directive, id=f"{directive.id}#{failed}") if failed else directive

    def _done(self, directive: str) -> DirectiveResult | None:
        """Return a store operation's successful result."""
        for agent in self.agents:
            answer = agent.results.get(directive)
            if answer is not None and answer.ok:
                return answer
            for name, later in agent.results.items():
                if later.ok and name.startswith(f"{directive}#"):
                    return later
        return None
