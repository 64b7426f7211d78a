"""Handwritten digits: a fixed split, and batches that are a pure function of (seed, step).

The data epoch of a step names a permutation of the training samples; a step takes the next `batch` positions of it,
the last step of an epoch what is left. So each sample is used exactly once per epoch whatever the number of workers,
and a restart at step s sees the batches that an undisturbed run would have seen (ME8).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
TEST_SHARE = 5
"""Every fifth sample of a fixed permutation is kept for the test."""


@dataclass(frozen=True)
class Digits:
    """Images scaled to 0..1 and their labels."""

    train_images: Floats
    train_labels: Whole
    test_images: Floats
    test_labels: Whole


@dataclass(frozen=True)
class Batch:
    """The global batch of one step: positions `first` to `end` of the permutation of `data_epoch`."""

    step: int
    data_epoch: int
    first: int
    end: int
    samples: Whole

    def part(self, rank: int, world: int) -> Whole:
        """Return the slice of one rank; the slices of all ranks are the batch."""
        size = len(self.samples)
        return self.samples[size * rank // world : size * (rank + 1) // world]

    def bounds(self, rank: int, world: int) -> tuple[int, int]:
        """Return the positions that one rank's slice covers."""
        size = len(self.samples)
        return self.first + size * rank // world, self.first + size * (rank + 1) // world


class Schedule:
    """Which samples belong to which step."""

    def __init__(self, samples: int, batch: int, *, seed: int) -> None:
        self._samples, self._batch, self._seed = samples, batch, seed
        self._permutation: tuple[int, Whole] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Return how many steps one pass over the data takes."""
        return -(-self._samples // self._batch)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step; steps count from 1."""
        data_epoch, position = divmod(step - 1, self.steps_per_epoch)
        if self._permutation is None or self._permutation[0] != data_epoch:
            order = np.random.default_rng((self._seed, data_epoch)).permutation(self._samples)
            self._permutation = (data_epoch, order)
        first = position * self._batch
        end = min(first + self._batch, self._samples)
        return Batch(step, data_epoch, first, end, self._permutation[1][first:end])

    def consumed(self, step: int) -> int:
        """Return how many samples the steps up to this one used, over all ranks."""
        data_epoch, position = divmod(step, self.steps_per_epoch)
        return data_epoch * self._samples + min(position * self._batch, self._samples)


def load() -> Digits:
    """Load scikit-learn's digits and split them in the same way every time."""
    table = _table()
    order = np.random.default_rng(0).permutation(len(table))
    is_test = np.zeros(len(table), dtype=bool)
    is_test[order[::TEST_SHARE]] = True
    images, labels = table[:, :-1] / 16.0, table[:, -1].astype(np.int64)
    return Digits(images[~is_test], labels[~is_test], images[is_test], labels[is_test])


def _table() -> Floats:
    """Read the table without importing scikit-learn, which would cost a second at each restart."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the digits are part of scikit-learn: install it with `pip install scikit-learn`")
    path = Path(next(iter(found.submodule_search_locations))) / "datasets" / "data" / "digits.csv.gz"
    if path.exists():
        return np.loadtxt(path, delimiter=",", dtype=np.float64)
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target]).astype(np.float64)
