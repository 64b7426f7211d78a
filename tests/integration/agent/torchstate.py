"""Saves and restores the states of two torch models, each one shard, and compares them bit by bit. Needs torch and no more.

    torch-python torchstate.py FOLDER

The last line of output is JSON: the torch version, and the bytes of both checkpoints and of the second one's reuse.
"""

import json
import sys
import time
from pathlib import Path

import torch

from trainer_operator.agent import store
from trainer_operator.agent.backends import HomeOpener
from trainer_operator.agent.conversation import Conversation
from trainer_operator.agent.saver import SaveOrder, Saver
from trainer_operator.agent.sdk.trainer_sdk import Job
from trainer_operator.agent.settings import read_settings
from trainer_operator.agent.state import State

SHARDS = 2
FIRST, SECOND = "000000000010-e1-00ab", "000000000020-e1-00ab"
MEMBERS = json.dumps(
    [{"role": "ps", "index": n, "rank": n, "address": "a", "port": 1} for n in range(SHARDS)]
)


class Server:
    """A parameter server with its agent: a model whose first layer is frozen, and its optimizer."""

    def __init__(self, folder, rank):
        self.rank = rank
        folder = folder / str(rank)
        identity = {
            "NAME": "t",
            "NAMESPACE": "n",
            "UID": "u",
            "ROLE": "ps",
            "POD_UID": "p",
            "INDEX": str(rank),
        }
        settings = read_settings(
            {f"TRAINER_{key}": value for key, value in identity.items()}, folder=str(folder)
        )
        address = str(folder.parent / "store" / "n" / "t-01234567")
        self.home = HomeOpener(address, "")
        self.state = State(lambda: 0.0)
        self.saver = Saver(settings, self.state, open_home=self.home, log=print)
        folder.mkdir()
        self.conversation = Conversation(
            settings, self.state, saver=self.saver, socket_path=str(folder / "s")
        )
        self.environment = {
            "TRAINER_AGENT_SOCK": str(folder / "s"),
            "TRAINER_SPOOL_DIR": settings.spool_folder,
            "TRAINER_STORE": address,
            "TRAINER_ROLE": "ps",
            "TRAINER_RANK": str(rank),
            "TRAINER_INDEX": str(rank),
            "TRAINER_MEMBERS": MEMBERS,
        }
        self.job = Job(self.environment)
        self.model, self.optimizer = fresh(seed=rank)

    def train(self):
        loss = self.model(torch.ones(4, 300)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def save(self, ckpt, base=""):
        step = store.step_of(ckpt)
        order = SaveOrder(ckpt, step, self.rank, (0,), 1, base=base)
        self.conversation.ask_checkpoint(order, pause=False, directive=ckpt)
        wait(lambda: self.job._order is not None)
        assert self.job.should_checkpoint(step)
        self.job.save(step, tensors(self.model, self.optimizer))
        wait(lambda: any(ack.ckpt == ckpt for ack in self.state.view().acks))
        assert all(ack.ok for ack in self.state.view().acks), self.state.view().acks

    def restored(self, ckpt):
        environment = {**self.environment, "TRAINER_AGENT_SOCK": "", "TRAINER_RESTORE_CKPT": ckpt}
        job = Job({**environment, "TRAINER_RESTORE_STEP": str(store.step_of(ckpt))})
        model, optimizer = fresh(seed=99)
        job.register(tensors(model, optimizer))
        return job.restore().state


def fresh(seed):
    """Return a model and its optimizer, whose state has all tensors that it will ever have."""
    torch.manual_seed(seed)
    frozen, head = torch.nn.Linear(300, 1000), torch.nn.Linear(1000, 10)
    frozen.requires_grad_(False)
    model = torch.nn.Sequential(frozen, torch.nn.BatchNorm1d(1000), head)
    model.register_buffer("short", torch.rand(5, 3).to(torch.bfloat16))
    model.register_buffer("turned", torch.rand(4, 6).t())
    model.register_buffer("nothing", torch.zeros(0, 7))
    model.register_buffer("flags", torch.tensor([True, False]))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return model, optimizer


def tensors(model, optimizer):
    """Return all tensors under one name each: the model's, and the optimizer's by number."""
    momentum = {
        f"optimizer.{number}.momentum": state["momentum_buffer"]
        for number, state in optimizer.state_dict()["state"].items()
    }
    return {**{f"model.{name}": value for name, value in model.state_dict().items()}, **momentum}


def same(restored, expected):
    """Whether a restored array, loaded as training code does it, equals a tensor bit by bit."""
    found = torch.from_numpy(restored)
    if expected.dtype == torch.bfloat16:
        found = found.view(torch.bfloat16)
    return found.dtype == expected.dtype and found.shape == expected.shape and torch.equal(found, expected)


def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def commit(home, ckpt):
    step = store.step_of(ckpt)
    where = store.CheckpointDir(home(), ckpt)
    return store.decide_commit(where, shards=SHARDS, copies=1, step=step, epoch=1, reason="r", nonce="n")


def main():
    servers = [Server(Path(sys.argv[1]), rank) for rank in range(SHARDS)]
    expected, decisions = {}, {}
    for ckpt, base in ((FIRST, ""), (SECOND, FIRST)):
        for server in servers:
            server.train()
            server.save(ckpt, base)
            state = tensors(server.model, server.optimizer)
            expected[ckpt, server.rank] = {name: value.detach().clone() for name, value in state.items()}
        decisions[ckpt] = commit(servers[0].home, ckpt)
    for (ckpt, rank), state in expected.items():
        restored = servers[rank].restored(ckpt)
        assert sorted(restored) == sorted(state)
        wrong = [name for name, value in state.items() if not same(restored[name], value)]
        assert not wrong, (ckpt, rank, wrong)
    for server in servers:
        server.conversation.server.close()
        server.saver.wait_idle(60)
    sizes = {"bytes": decisions[SECOND].bytes, "reused": decisions[SECOND].reused}
    print(json.dumps({"torch": torch.__version__, "first": decisions[FIRST].bytes, **sizes}))


if __name__ == "__main__":
    main()
