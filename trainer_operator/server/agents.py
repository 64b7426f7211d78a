"""The agent API: `POST /v1/agents/beat`.

Only the leader answers; others say 503 and the agent tries the next address (TX3). A reply is held until there is
news for the member, at most as long as the agent asked, so that a directive arrives in milliseconds although beats
are seconds apart.
"""

import asyncio
from collections.abc import Callable, Mapping

import orjson
import structlog
from aiohttp import web

from runtime.cache.projection import Pod
from runtime.clock import Clock
from runtime.listener import BODY_DEADLINE
from trainer_operator.api import names
from trainer_operator.server.answers import problem
from trainer_operator.server.auth import Authenticator, NotAMember, NotKnownYet, Unauthenticated
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import MAX_BEAT_BYTES, Beat, MalformedBeat, decode
from trainer_operator.topology.members import MemberId, Members

MAX_HOLD = 15.0
BUCKET_RATE = 2.0
BUCKET_BURST = 10.0
_NOTHING: Mapping[str, object] = {"directives": [], "key": ""}
"""What an incarnation that was replaced is told: no orders, and no key to the others' chunks."""
_log = structlog.get_logger("agents")


class AgentApi:
    """Handlers of the agent API.

    Guarantees: nothing reaches `members` that did not pass authentication and the bounds of AA7; a body that claims
    another identity than the token's pod is refused with 403 and counted.
    """

    def __init__(
        self,
        members: Members,
        authenticator: Authenticator,
        clock: Clock,
        *,
        is_leader: Callable[[], bool],
        term: Callable[[], int],
        metrics: TrainerMetrics,
    ) -> None:
        self._members = members
        self._authenticator = authenticator
        self._clock = clock
        self._is_leader = is_leader
        self._term = term
        self._metrics = metrics
        self._buckets: dict[str, tuple[float, float]] = {}
        self.refused = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to add to the server."""
        return [web.post("/v1/agents/beat", self.beat)]

    async def beat(self, request: web.Request) -> web.Response:
        """Take one beat and answer with what the member shall do."""
        if not self._is_leader():
            self._metrics.beat("not ready")
            return problem(503, "this replica does not lead; try the next address", retry_after=1)
        if request.content_length is not None and request.content_length > MAX_BEAT_BYTES:
            self._metrics.beat("malformed")
            return problem(413, f"a beat is at most {MAX_BEAT_BYTES} bytes")
        try:
            pod = await self._authenticator.pod_of(request.headers.get("Authorization"))
        except Unauthenticated as error:
            self._metrics.beat("unauthenticated")
            return problem(401, str(error))
        except NotAMember as error:
            return self._refuse(str(error))
        except NotKnownYet as error:
            self._metrics.beat("not ready")
            return problem(503, str(error), retry_after=1)
        if not self._take_token(pod.uid):
            self._metrics.beat("too fast")
            return problem(429, "more than 2 beats a second", retry_after=1)
        try:
            async with asyncio.timeout(BODY_DEADLINE):
                body = await request.read()
        except TimeoutError:
            self._metrics.beat("too slow")
            return problem(408, f"the beat did not arrive within {BODY_DEADLINE:g} s")
        try:
            beat = decode(body)
        except MalformedBeat as error:
            self._metrics.beat("malformed")
            return problem(400, str(error))
        reason = mismatch(pod, beat)
        if reason is not None:
            return self._refuse(reason)
        return await self._take(beat)

    async def _take(self, beat: Beat) -> web.Response:
        member = MemberId(beat.role, beat.idx)
        uid = beat.training
        if not self._members.accept(beat):
            self._metrics.beat("older")
            reply = self._members.reply(uid, member, term=self._term())
            reply.update(_NOTHING)  # an older incarnation gets no orders
            return _json(reply)
        self._metrics.beat("accepted")
        reply = self._members.reply(uid, member, term=self._term())
        if not self._members.mark_told(uid, member, reply) and beat.hold > 0:
            await self._members.wait_news(uid, member, hold=min(beat.hold, MAX_HOLD))
            reply = self._members.reply(uid, member, term=self._term())
            if self._members.is_current(beat):
                self._members.mark_told(uid, member, reply)
            else:
                reply.update(_NOTHING)  # it was replaced while it waited; the orders are its successor's
        return _json(reply)

    def _refuse(self, reason: str) -> web.Response:
        self.refused += 1
        self._metrics.beat("refused")
        _log.warning("refused a beat", reason=reason)
        return problem(403, reason)

    def _take_token(self, pod_uid: str) -> bool:
        now = self._clock.monotonic()
        tokens, at = self._buckets.get(pod_uid, (BUCKET_BURST, now))
        tokens = min(BUCKET_BURST, tokens + (now - at) * BUCKET_RATE)
        if len(self._buckets) > 50_000:
            self._buckets.clear()
        self._buckets[pod_uid] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1


def mismatch(pod: Pod, beat: Beat) -> str | None:
    """Say where a beat claims to be another member than the pod its token is bound to (AA4), or None."""
    labels = pod.labels
    owner = next((ref for ref in pod.metadata.owner_references or () if ref.controller), None)
    expected = {
        "pod": (pod.uid, beat.pod),
        "tuid": ((owner.uid or "") if owner is not None else "", beat.tuid),
        "trainer": (f"{pod.namespace}/{labels.get(names.TRAINER_LABEL, '')}", beat.trainer),
        "role": (labels.get(names.ROLE_LABEL, ""), beat.role),
        "idx": (labels.get(names.INDEX_LABEL, ""), str(beat.idx)),
        "attempt": (labels.get(names.ATTEMPT_LABEL, ""), str(beat.attempt)),
    }
    for name, (ours, claimed) in expected.items():
        if ours != claimed:
            return f"{name} is {claimed[:80]!r}, but the token belongs to {ours!r}"
    return None


def _json(body: dict[str, object]) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")
