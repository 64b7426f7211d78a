"""A running Trainer and the one checkpoint that a test looks at, with short ways to ask, look and answer."""

from runtime.objects import ObjectKey
from simulation.world import KEY, Operator, World, one_pass, request
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.api.status import Phase
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.members import MemberId

W0 = MemberId("worker", 0)
MINE = ObjectKey(KEY.namespace, "mine")


class Case:
    """A running Trainer that takes no checkpoints by itself, and one that a user asks for."""

    def __init__(self, **topology):
        self.world = World(epochs=200, **topology)
        self.world.edit(checkpoint={"bucket": "claim", "intervalMinutes": 500, "maxRetention": 2})
        self.operator = Operator(self.world)

    async def run(self, seconds=1):
        for _ in range(seconds):
            await one_pass(self.world, [self.operator])
            self.world.tick(self.operator)

    async def start(self):
        await self.run(8)
        assert self.world.status.phase is Phase.RUNNING
        return self

    async def ask(self, key=MINE, **spec):
        """Create a Checkpoint as a user does."""
        trainer = self.world.api.log.get(TRAINERS, KEY)
        owner = {"kind": "Trainer", "name": KEY.name, "uid": self.world.uid, "controller": True}
        body = {
            "metadata": {"name": key.name, "ownerReferences": [owner]},
            "spec": {"trainerRef": {"name": KEY.name, "uid": trainer["metadata"]["uid"]}, **spec},
        }
        await self.world.api.create(CHECKPOINTS, body, namespace=key.namespace)
        self.world.api.writes.clear()

    async def look(self, key=MINE):
        return await self.operator.checkpoint.reconcile(request(key))

    def status(self, key=MINE):
        return self.world.api.log.get(CHECKPOINTS, key).get("status") or {}

    def told(self, member=W0):
        directives = self.operator.members.reply(self.world.uid, member, term=0)["directives"]
        return [(directive["kind"], directive["args"].get("op")) for directive in directives]

    def writes(self):
        return [name for _, kind, name in self.world.api.writes if kind == "Checkpoint"]

    def agent(self, member):
        return next(agent for agent in self.world.agents.values() if agent.member == member)

    def answer(self, member, directive, **result):
        """Have an agent report a result of its own making; the operator hears it with the next beat."""
        agent = self.agent(member)
        agent.results[directive] = DirectiveResult(directive, **result)
        self.operator.members.accept(agent.beat(self.world.uid))


async def take(case, count):
    keys = [ObjectKey(KEY.namespace, f"t-c{number:05d}") for number in range(1, count + 1)]
    for key in keys:
        await case.ask(key)
        for _ in range(12):
            await case.run()
            if case.status(key).get("state") == "Committed":
                break
        assert case.status(key)["state"] == "Committed"
    await case.run(6)
    return keys
