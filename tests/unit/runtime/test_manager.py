"""The manager without an API server: what happens before there is anything to talk about."""

import asyncio

from runtime.client.config import ClientConfig
from runtime.manager import OK, Manager
from runtime.tasks import TaskScope


class NeverStarts:
    """A server that waits for something that does not come."""

    def __init__(self):
        self.waits = asyncio.Event()
        self.stopped = False

    async def start(self):
        self.waits.set()
        await asyncio.Event().wait()

    async def stop(self):
        self.stopped = True


async def test_a_signal_ends_the_wait_for_a_server_that_cannot_start_yet():
    """P2, TR43: as while a certificate is missing."""
    manager = Manager(ClientConfig(server="http://127.0.0.1:1"), health_address=None, freeze_memory=False)
    server, stop = NeverStarts(), asyncio.Event()
    manager.add_server(server)
    async with TaskScope() as scope:
        running = scope.spawn(manager.run(stop), name="manager")
        await server.waits.wait()
        assert not manager.is_ready
        stop.set()
        assert await running == OK
    assert server.stopped
