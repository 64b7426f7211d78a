"""The State Tree over HTTPS: `GET /v1/trees/{namespace}/{name}` (CR10, ST4).

Only who may `get` the Trainer may see its tree: the caller's bearer token is reviewed, then its right. Served by the
leader, which alone knows the agents.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from aiohttp import web

from runtime.objects import ObjectKey
from trainer_operator.api.status import MemberStatus
from trainer_operator.api.trainer import Trainer
from trainer_operator.server.answers import problem
from trainer_operator.server.users import UserReviewer
from trainer_operator.topology.forest import Forest
from trainer_operator.topology.members import AgentView, MemberId, Members
from trainer_operator.topology.state import DOWN, READY, State
from trainer_operator.topology.tree import Tree
from trainer_operator.trainer.unreadable import Unreadable

LONGEST_SENTENCE = 400
"""Characters of a refusal: clients keep the first 500 of what is no Status."""


class TreeApi:
    """Answers with the tree of one Trainer as JSON."""

    def __init__(
        self,
        forest: Forest,
        members: Members,
        reviewer: UserReviewer,
        *,
        trainer: Callable[[ObjectKey], Trainer | Unreadable | None],
        is_leader: Callable[[], bool],
    ) -> None:
        self._forest = forest
        self._members = members
        self._reviewer = reviewer
        self._trainer = trainer
        self._is_leader = is_leader

    def routes(self) -> list[web.RouteDef]:
        """Return what the server shall serve."""
        return [web.get("/v1/trees/{namespace}/{name}", self._get)]

    async def _get(self, request: web.Request) -> web.Response:
        key = ObjectKey(request.match_info["namespace"], request.match_info["name"])
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return problem(401, "send the token of a user: Authorization: Bearer <token>")
        if not self._is_leader():
            return problem(503, "this replica does not lead; ask another one", retry_after=2)
        refusal = await self._reviewer.refuses(token, key)
        if refusal is not None:
            return problem(refusal.status, refusal.message)
        trainer = self._trainer(key)
        if isinstance(trainer, Unreadable):
            return problem(409, f"Trainer {key.name} cannot be read: {trainer.fault}"[:LONGEST_SENTENCE])
        tree = self._forest.tree(trainer.metadata.uid) if trainer is not None else None
        if trainer is None or tree is None:
            return problem(404, f"no Trainer {key.name} in namespace {key.namespace}")
        body = dump(trainer, tree, self._members.view(trainer.metadata.uid))
        return web.Response(body=orjson.dumps(body), content_type="application/json")


def dump(trainer: Trainer, tree: Tree, agents: Mapping[MemberId, AgentView]) -> dict[str, Any]:
    """Return a tree as JSON values: the Trainer, its roles, their members with the four facts of ST4."""
    status, membership = trainer.status, trainer.status.membership
    records = {MemberId(entry.role, entry.index): entry for entry in status.members}
    roles = []
    for name in ("master", "worker", "ps"):
        members = sorted(member for member in tree if member.role == name)
        if not members:
            continue
        role = tree.roles[name]
        roles.append(
            {
                "role": name,
                "desired": getattr(status.roles, name).desired,
                "ready": role.ready,
                "worst": role.worst,
                "counts": {str(state): count for state, count in role.counts.items() if count},
                "members": [
                    _member(tree, member, records.get(member), agents.get(member)) for member in members
                ],
            }
        )
    return {
        "trainer": f"{trainer.metadata.namespace}/{trainer.metadata.name}",
        "uid": trainer.metadata.uid,
        "phase": status.phase,
        "epoch": membership.epoch,
        "membershipPhase": membership.phase,
        "psEpoch": membership.ps_epoch,
        "globalStep": status.global_step,
        "epochsCompleted": status.epochs_completed,
        "epochs": trainer.spec.epochs,
        "roles": roles,
    }


def _member(
    tree: Tree, member: MemberId, record: MemberStatus | None, agent: AgentView | None
) -> dict[str, Any]:
    state = tree.state(member) or State.PENDING
    body: dict[str, Any] = {
        "member": str(member),
        "state": state,
        "live": agent is not None and state not in {State.LOST, State.PENDING},
        "ready": state in READY,
        "progressing": state is State.READY,
        "cause": tree.cause(member)
        or (record.last_reason or "" if record is not None and state in DOWN else ""),
        "attempt": record.attempt if record is not None else 0,
    }
    if agent is not None:
        beat = agent.beat
        usual = agent.clock.median if agent.clock is not None else None
        body |= {
            "pod": beat.pod_name,
            "boot": beat.boot,
            "run": beat.run,
            "step": beat.step if beat.steps != "none" or not agent.plain else None,
            "stepAgeSeconds": round(agent.step_age, 1),
            "beatAgeSeconds": round(agent.age, 1),
            "stepsPerSecond": round(1 / usual, 3) if usual else None,
        }
    return body
