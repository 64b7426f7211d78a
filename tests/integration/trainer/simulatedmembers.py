"""Members whose kubelet and agents are simulated, on the real API server and against the real agents' endpoint.

Pods are bound to a node that only reports that it is Ready. Whatever the agents are told and do is that of the
simulation (tests/simulation/world.py); here their beats travel over TLS with tokens of their pods.
"""

import asyncio
import contextlib
import datetime as dt
import ssl

import aiohttp
import msgspec

from simulation.world import Training
from trainer_operator.server.auth import AUDIENCE

STEP = 0.25
"""Seconds of a training step."""
HEARTBEAT = 5.0
PAUSE = 0.05


class SimulatedMembers(Training):
    """Kubelet, agents and processes of one Trainer; `run` never returns."""

    def __init__(self, admin, namespace, name, *, url, authority, node):
        super().__init__(epochs=10_000)
        self.admin, self.namespace, self.name, self.node = admin, namespace, name, node
        self.url, self._context = url, ssl.create_default_context(cafile=str(authority))
        self._tokens = {}
        self._posts = {}

    async def run(self, scope):
        metadata = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        assert (await self._ask("POST", "/api/v1/nodes", metadata)).status == 201
        scope.spawn(self._heartbeats(), name="node")
        scope.spawn(self._steps(), name="steps")
        connector = aiohttp.TCPConnector(ssl=self._context, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                await self._kubelet(scope, session)
                await asyncio.sleep(PAUSE)

    async def end(self):
        """Take the node away; its pods go with their namespace."""
        for pod in await self.pods():
            await self._ask("DELETE", self._pod(pod["metadata"]["name"]) + "?gracePeriodSeconds=0")
        await self._ask("DELETE", f"/api/v1/nodes/{self.node}")

    async def pods(self):
        answer = await self._ask("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        return answer.json()["items"] if answer.status == 200 else []

    # -- the node

    async def _heartbeats(self):
        while True:
            now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {"type": "Ready", "status": "True", "reason": "Simulated", "lastHeartbeatTime": now}
            await self._patch(f"/api/v1/nodes/{self.node}/status", {"status": {"conditions": [ready]}})
            await asyncio.sleep(HEARTBEAT)

    async def _kubelet(self, scope, session):
        for pod in await self.pods():
            metadata = pod["metadata"]
            path, uid = self._pod(metadata["name"]), metadata["uid"]
            if metadata.get("deletionTimestamp"):
                self.agents.pop(uid, None)
                await self._ask("DELETE", f"{path}?gracePeriodSeconds=0")
            elif not pod["spec"].get("nodeName"):
                target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}}
                await self._ask("POST", f"{path}/binding", {**binding, "target": target})
            elif pod["status"]["phase"] == "Pending":
                ready = {"type": "Ready", "status": "True"}
                await self._patch(f"{path}/status", {"status": {"phase": "Running", "conditions": [ready]}})
                self._tokens[uid] = await self._token(metadata["name"], uid)
                agent = self.start_agent(pod)
                owner = metadata["ownerReferences"][0]["uid"]
                scope.spawn(self._beats(session, agent, owner), name=metadata["name"])
            elif pod["status"]["phase"] == "Running" and uid not in self.agents:
                await self._patch(f"{path}/status", {"status": {"phase": "Succeeded"}})

    async def _token(self, name, uid):
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default/token"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        spec = {"audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self._ask("POST", path, body)
        assert answer.status == 201, answer.body
        return answer.json()["status"]["token"]

    # -- agents and processes

    async def _beats(self, session, agent, owner):
        """Report until the agent is gone; while no operator answers, try again."""
        headers = {"Authorization": f"Bearer {self._tokens[agent.pod]}"}
        while agent.pod in self.agents:
            beat = msgspec.structs.replace(
                agent.beat(owner),
                trainer=f"{self.namespace}/{self.name}",
                dt_ms=[STEP * 1000],
                hold=STEP,
            )
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(5):
                    async with session.post(
                        f"{self.url}/v1/agents/beat", data=msgspec.json.encode(beat), headers=headers
                    ) as answer:
                        if answer.status == 200 and agent.pod in self.agents:
                            self.hear(agent, await answer.json())
            await asyncio.sleep(PAUSE * 4)

    async def _steps(self):
        while True:
            self.train()
            await asyncio.sleep(STEP)

    # -- the API server, as administrator

    def _pod(self, name):
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    async def _ask(self, method, path, body=None, *, content_type="application/json"):
        return await asyncio.to_thread(self.admin.request, method, path, body, content_type=content_type)

    async def _patch(self, path, body):
        await self._ask("PATCH", path, body, content_type="application/strategic-merge-patch+json")
