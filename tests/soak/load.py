"""A load that changes: ConfigMaps that are made, changed, moved between selections and deleted, past the proxy."""

import asyncio
import itertools

from runtime.objects import CONFIGMAPS
from runtime.tasks import TaskScope

RATES = (10, 40, 80)
"""Changes per second; one is drawn for each stretch of time."""

STRETCH = 5.0
WRITERS = 8


class Load:
    """Keeps about `count` objects in a namespace moving."""

    def __init__(self, client, namespace, *, count, rng):
        self._client = client
        self._namespace = namespace
        self._count = count
        self._rng = rng
        self._names = itertools.count(1)
        self._turns = itertools.count(1)
        self.alive = []
        self.deleted = set()
        self.changes = 0

    async def fill(self):
        """Create the first objects."""
        todo = iter(range(self._count))

        async def create_some():
            for _ in todo:
                await self._create()

        async with TaskScope() as scope:
            for _ in range(WRITERS):
                scope.spawn(create_some(), name="fill")

    async def run(self):
        """Change objects until cancelled."""
        while True:
            rate = self._rng.choice(RATES)
            for _ in range(int(rate * STRETCH)):
                await self._change_one()
                await asyncio.sleep(1.0 / rate)

    async def _change_one(self):
        self.changes += 1
        chance = self._rng.random()
        if chance < 0.1 and len(self.alive) > self._count // 2:
            name = self.alive.pop(self._rng.randrange(len(self.alive)))
            await self._client.delete(CONFIGMAPS, name, self._namespace)
            self.deleted.add(name)
        elif chance < 0.2:
            await self._create()
        elif chance < 0.4:
            await self._patch({"metadata": {"labels": {"half": self._rng.choice("ab")}}})
        else:
            await self._patch({"data": {"wanted": str(next(self._turns))}})

    async def _create(self):
        name = f"object-{next(self._names)}"
        body = {
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {"half": self._rng.choice("ab")},
            },
            "data": {"wanted": str(next(self._turns))},
        }
        await self._client.create(CONFIGMAPS, body)
        self.alive.append(name)

    async def _patch(self, change):
        await self._client.patch(CONFIGMAPS, self._rng.choice(self.alive), change, namespace=self._namespace)
