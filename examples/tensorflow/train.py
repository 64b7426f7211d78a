"""Train a small network on handwritten digits with TensorFlow's ParameterServerStrategy, and lose no training to a lost process.

    python3 train.py                 the command of a Trainer, for all roles: TF_CONFIG says which one this is

The master is TensorFlow's coordinator: it keeps the variables on the parameter servers and has workers compute the
gradients. Workers and servers run a server of TensorFlow and know of no step. So the coordinator has a line to each of
them, over which they hear of every finished step; a server answers whether to save it, and is given its variables then.

What a training that uses TensorFlow needs for the operator is marked with (1) to (5).
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener

import numpy as np
import tensorflow as tf
import trainer_sdk as sdk  # the agent in the pod brings it

DIGITS = os.environ.get("DIGITS", "digits.csv.gz")
"""A file of scikit-learn: sklearn/datasets/data/digits.csv.gz."""
SEED, BATCH, RATE, MOMENTUM = 7, 64, 0.05, 0.9
PACE = float(os.environ.get("PACE") or 0.0)
"""Least duration of a step in seconds, so that there is something to watch."""
SHAPES = {"w1": (64, 32), "b1": (32,), "w2": (32, 10), "b2": (10,)}
PATIENCE = 600.0
"""Seconds that a member waits for the others before it gives up."""
GONE = (EOFError, OSError)
"""What a line says when the process at its other end is gone."""
Tensors = dict[str, np.ndarray]


class Line:
    """What the coordinator and another member say to each other: arrays with names, nothing that could run."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, **arrays: object) -> None:
        """Send arrays."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        self._connection.send_bytes(buffer.getbuffer())

    def hear(self) -> Tensors:
        """Wait for arrays."""
        with np.load(io.BytesIO(self._connection.recv_bytes()), allow_pickle=False) as found:
            return dict(found)


class Others:
    """The coordinator's lines to all other members; a worker that comes back has a new one."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self._count = count
        self._changed = threading.Condition()
        self._servers: dict[int, Line] = {}
        self._workers: dict[int, Line] = {}
        self._restored: dict[int, Tensors] = {}
        self._listener = Listener(address, backlog=64, authkey=rendezvous())
        threading.Thread(target=self._accept, daemon=True).start()

    def restored(self) -> tuple[int, Tensors]:
        """Wait for everybody; return the step that the servers go on from, and the variables of all of them."""
        with self._changed:
            if not self._changed.wait_for(self._are_here, PATIENCE):
                raise SystemExit(
                    f"{self._count} others are expected, not all of them came in {PATIENCE:.0f} s"
                )
            (step,) = {int(state.pop("step")) for state in self._restored.values()}
            return step, {name: value for state in self._restored.values() for name, value in state.items()}

    def finished(self, step: int, shard: Callable[[int], Tensors]) -> None:
        """Tell everybody that a step is finished; a server that saves it gets its shard of the variables."""
        with self._changed:
            workers = list(self._workers.items())
        for line in self._servers.values():
            line.say(step=step)
        for index, line in self._servers.items():
            if line.hear()["saves"]:
                line.say(**shard(index))
        for index, line in workers:
            try:
                line.say(step=step)
            except GONE:
                with self._changed:
                    if self._workers.get(index) is line:
                        del self._workers[index]

    def end(self) -> None:
        """Let everybody go."""
        for line in (*self._servers.values(), *self._workers.values()):
            try:
                line.say(done=True)
            except GONE:
                continue

    def _are_here(self) -> bool:
        return len(self._servers) + len(self._workers) == self._count

    def _accept(self) -> None:
        while True:
            try:
                line = Line(self._listener.accept())
                hello = line.hear()
            except (*GONE, AuthenticationError):  # somebody of another epoch, or gone already
                continue
            role, index = str(hello.pop("role")), int(hello.pop("index"))
            with self._changed:
                if role == "ps":
                    self._servers[index], self._restored[index] = line, hello
                else:
                    self._workers[index] = line
                self._changed.notify_all()


def rendezvous() -> bytes:
    """Return what only members of this epoch know."""
    return os.environ["PET_RDZV_ID"].encode()


def place() -> tuple[str, int]:
    """Return where the coordinator listens for the others: beside the port that TensorFlow uses."""
    host, _, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["chief"][0].rpartition(":")
    return host, int(port) + 1


def coordinate(job: sdk.Job) -> None:
    """Train, or go on with the training, as the only one who decides what is computed."""
    others = Others(place(), len(job.members) - 1)
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    start, state = others.restored()  # (1) a parameter server restores what it saved, and hands it to us
    with strategy.scope():
        variables = {
            name: tf.Variable(value, name=name) for name, value in sorted((state or fresh()).items())
        }
    parameters = {name: variables[f"parameter.{name}"] for name in SHAPES}
    momenta = {name: variables[f"momentum.{name}"] for name in SHAPES}
    print(f"coordinator begins after step {start}", flush=True)

    @tf.function
    def gradients(images: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = summed_loss(parameters, images, labels)
        return tape.gradient(loss, list(parameters.values()))

    def shard(server: int) -> Tensors:
        return {
            name: variable.numpy()
            for name, variable in variables.items()
            if tf.DeviceSpec.from_string(variable.device).task == server
        }

    table = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
    images, labels, per_epoch = table[:, :-1] / 16, table[:, -1].astype(np.int64), len(table) // BATCH
    parts = sum(member.role == "worker" for member in job.members)
    for step in range(start + 1, job.epochs * per_epoch + 1):
        began = time.monotonic()
        job.pause_point()
        epoch, position = divmod(step - 1, per_epoch)  # (2) the batch depends on the step and the seed only
        order = np.random.default_rng((SEED, epoch)).permutation(len(images))
        batch = order[position * BATCH : (position + 1) * BATCH]
        work = [
            (tf.constant(images[mine]), tf.constant(labels[mine])) for mine in np.array_split(batch, parts)
        ]
        summed = sum_of(coordinator, gradients, work)
        for name, gradient in zip(SHAPES, summed, strict=True):
            momenta[name].assign(MOMENTUM * momenta[name] + gradient / BATCH)
            parameters[name].assign_sub(RATE * momenta[name])
        others.finished(
            step, shard
        )  # (3) the others report it, and servers save when the operator asks for it
        job.step(step, samples=step * BATCH)
        if position == per_epoch - 1:
            job.epoch_done(epoch + 1, metrics={"loss": total_loss(parameters, images, labels)})
        time.sleep(max(0.0, began + PACE - time.monotonic()))

    print(f"coordinator: final loss {total_loss(parameters, images, labels)!r}", flush=True)
    others.end()
    job.done()  # (4) an exit with 0 is no failure, and this says why it came


def sum_of(
    coordinator: tf.distribute.coordinator.ClusterCoordinator,
    gradients: Callable[..., list[tf.Tensor]],
    work: Sequence[tuple[tf.Tensor, tf.Tensor]],
) -> list[np.ndarray]:
    """Have the workers that are there compute the gradients of all parts; the sum does not depend on who computed which."""
    computed = [coordinator.schedule(gradients, args=part) for part in work]
    coordinator.join()  # gives the part of a lost worker to another one, and raises for a lost server
    return [np.sum(each, axis=0) for each in zip(*(value.fetch() for value in computed), strict=True)]


def serve(job: sdk.Job) -> None:
    """Be a server of TensorFlow, as worker or parameter server, and report what the coordinator says."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    restored = job.restore() if job.role == "ps" else None
    step, state = (restored.step, restored.state) if restored is not None else (0, {})
    line = reach()
    try:
        line.say(role=job.role, index=job.rank if job.role == "ps" else job.index, step=step, **state)
        follow(job, line)
    except (
        GONE
    ) as error:  # (5) the operator restarts us all, from the last checkpoint: trainer.yaml's failureRules
        print(f"the coordinator is gone, waiting for the next epoch: {error!r}", file=sys.stderr, flush=True)
        job.phase("rendezvous")
        time.sleep(PATIENCE)
        raise SystemExit(os.EX_TEMPFAIL) from error
    del server


def follow(job: sdk.Job, line: Line) -> None:
    """Report every step that the coordinator finishes; a server saves the one that was asked for."""
    begun = False
    while "done" not in (said := line.hear()):
        step = int(said["step"])
        if not begun:
            begun = True
            print(f"{job.role} {job.index} begins after step {step - 1}", flush=True)
        job.pause_point()
        job.step(step, samples=step * BATCH)
        if job.role == "ps":
            saves = job.should_checkpoint(step)
            line.say(saves=saves)
            if saves:
                job.save(step, line.hear())
    job.done()


def reach() -> Line:
    """Return a line to the coordinator of this epoch, once it listens."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Line(Client(place(), authkey=rendezvous()))
        except (*GONE, AuthenticationError) as error:
            if time.monotonic() >= deadline:
                raise SystemExit(f"no coordinator for {PATIENCE:.0f} s: {error!r}") from error
        time.sleep(0.1)


def fresh() -> Tensors:
    """Return the variables to begin with."""
    random = np.random.default_rng(SEED)
    parameters = {
        f"parameter.{name}": np.float32(random.normal(0, 0.1, shape)) for name, shape in SHAPES.items()
    }
    return parameters | {f"momentum.{name}": np.zeros(shape, np.float32) for name, shape in SHAPES.items()}


def summed_loss(parameters: dict[str, tf.Variable], images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the sum of the cross entropies of some images."""
    hidden = tf.nn.relu(images @ parameters["w1"] + parameters["b1"])
    logits = hidden @ parameters["w2"] + parameters["b2"]
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def total_loss(parameters: dict[str, tf.Variable], images: np.ndarray, labels: np.ndarray) -> float:
    """Return the loss over all images, computed by this process alone."""
    local = {name: tf.constant(variable.numpy()) for name, variable in parameters.items()}
    return float(summed_loss(local, tf.constant(images), tf.constant(labels))) / len(images)


def main() -> None:
    """Do what this member is there for."""
    tf.get_logger().setLevel("WARNING")
    job = sdk.init()
    if job.role == "master":
        coordinate(job)
    else:
        serve(job)


if __name__ == "__main__":
    main()
