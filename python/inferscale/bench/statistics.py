"""Intervals and tests over questions that come in conversations.

Questions of one conversation share its facts and are not independent, so a resample draws
conversations with replacement, and then as many questions within each drawn conversation. Arms that
answered the same questions are compared question by question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 5000


@dataclass(frozen=True)
class Estimate:
    """A mean and the middle 95 % of its resamples."""

    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class NonInferiority:
    """Is an arm worse than its reference by less than the margin? `worst` is the lower end of the
    one-sided 95 % interval of the gain: the smallest margin that the data would have shown is
    -worst."""

    gain: Estimate  # arm - reference, turned so that more is better
    margin: float
    worst: float
    p_value: float  # share of resamples that lose the margin or more

    @property
    def shown(self) -> bool:
        return self.worst > -self.margin


def resampled_means(
    values: Sequence[float], groups: Sequence[str], seed: int, resamples: int = RESAMPLES
) -> Floats:
    """The means of `resamples` resamples."""
    random = np.random.default_rng(seed)
    data = np.asarray(values, np.float64)
    names = np.asarray(groups)
    members = [np.flatnonzero(names == name) for name in dict.fromkeys(groups)]
    drawn = random.multinomial(len(members), np.full(len(members), 1 / len(members)), resamples)
    sums, counts = np.zeros(resamples), np.zeros(resamples)
    for index, member in enumerate(members):
        # A conversation drawn c times is c independent draws of its n questions: c * n of them.
        taken = drawn[:, index] * len(member)
        weights = random.multinomial(taken, np.full(len(member), 1 / len(member)))
        sums += weights @ data[member]
        counts += taken
    means: Floats = sums / counts
    return means


def estimate(
    values: Sequence[float], groups: Sequence[str], seed: int, resamples: int = RESAMPLES
) -> Estimate:
    """Mean and 95 % interval; at least one value."""
    low, high = np.percentile(resampled_means(values, groups, seed, resamples), [2.5, 97.5])
    return Estimate(float(np.mean(values)), float(low), float(high), len(values))


def non_inferiority(
    arm: Sequence[float],
    reference: Sequence[float],
    groups: Sequence[str],
    *,
    margin: float,
    larger_is_better: bool,
    seed: int,
    resamples: int = RESAMPLES,
) -> NonInferiority:
    """Paired test at 5 %, one-sided. `arm[i]` and `reference[i]` are of the same question."""
    sign = 1.0 if larger_is_better else -1.0
    gains = [sign * (a - r) for a, r in zip(arm, reference, strict=True)]
    means = resampled_means(gains, groups, seed, resamples)
    low, worst, high = np.percentile(means, [2.5, 5, 97.5])
    lost = int(np.count_nonzero(means <= -margin))
    return NonInferiority(
        Estimate(float(np.mean(gains)), float(low), float(high), len(gains)),
        margin,
        float(worst),
        (lost + 1) / (resamples + 1),
    )
