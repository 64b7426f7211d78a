"""A small perceptron with momentum, in float64 and without any randomness after its start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from data import Floats, Whole

HIDDEN = 64
LEARNING_RATE = 0.1
MOMENTUM = 0.9
NAMES = ("w1", "b1", "w2", "b2")
Tensors = dict[str, Floats]


def initial(seed: int) -> Tensors:
    """Return the parameters that training starts from."""
    rng = np.random.default_rng(seed)
    return {
        "w1": rng.normal(0.0, np.sqrt(2.0 / 64), (64, HIDDEN)),
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(0.0, np.sqrt(2.0 / HIDDEN), (HIDDEN, 10)),
        "b2": np.zeros(10),
    }


def gradient(parameters: Mapping[str, Floats], images: Floats, labels: Whole) -> Tensors:
    """Return the gradient summed over the samples, so that the slices of a batch simply add up."""
    hidden = np.maximum(images @ parameters["w1"] + parameters["b1"], 0.0)
    error = _softmax(hidden @ parameters["w2"] + parameters["b2"])
    error[np.arange(len(labels)), labels] -= 1.0
    back = (error @ parameters["w2"].T) * (hidden > 0.0)
    return {"w1": images.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ error, "b2": error.sum(axis=0)}


def apply(parameters: Tensors, momentum: Tensors, total: Mapping[str, Floats], *, batch: int) -> None:
    """Change parameters and momentum by the summed gradient of a batch, in place."""
    for name, summed in total.items():
        momentum[name] *= MOMENTUM
        momentum[name] += summed / batch
        parameters[name] -= LEARNING_RATE * momentum[name]


def accuracy(parameters: Mapping[str, Floats], images: Floats, labels: Whole) -> float:
    """Return the share of images that are recognised."""
    hidden = np.maximum(images @ parameters["w1"] + parameters["b1"], 0.0)
    return float(np.mean(np.argmax(hidden @ parameters["w2"] + parameters["b2"], axis=1) == labels))


def zeros_like(tensors: Mapping[str, Floats]) -> Tensors:
    """Return zeros of the same shapes."""
    return {name: np.zeros_like(value) for name, value in tensors.items()}


def to_state(parameters: Mapping[str, Floats], momentum: Mapping[str, Floats]) -> Tensors:
    """Return everything that a restart needs, as one mapping."""
    return {**parameters, **{"momentum." + name: value for name, value in momentum.items()}}


def from_state(state: Mapping[str, Floats]) -> tuple[Tensors, Tensors]:
    """Split what `to_state` made."""
    parameters = {name: np.array(value) for name, value in state.items() if not name.startswith("momentum.")}
    return parameters, {name: np.array(state["momentum." + name]) for name in parameters}


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
