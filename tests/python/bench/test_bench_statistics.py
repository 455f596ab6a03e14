"""Intervals and tests against values by hand and against the plainest resampling there is."""

import random
import statistics
from itertools import product

import numpy as np
import pytest
from inferscale.bench.statistics import estimate, non_inferiority, resampled_means


def plain_resample(values: list[float], groups: list[str], draw: random.Random) -> float:
    """Conversations with replacement, then questions with replacement in each drawn one."""
    names = sorted(set(groups))
    taken: list[float] = []
    for name in (draw.choice(names) for _ in names):
        members = [v for v, g in zip(values, groups, strict=True) if g == name]
        taken += [draw.choice(members) for _ in members]
    return statistics.fmean(taken)


def test_resampling_is_the_plain_one() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    sizes = [1, 7, 3, 12]
    groups = [f"c{i}" for i, size in enumerate(sizes) for _ in range(size)]
    values = [draw.gauss(int(group[1:]), 1) for group in groups]
    fast = resampled_means(values, groups, seed, 40000)
    plain = np.array([plain_resample(values, groups, draw) for _ in range(40000)])
    spread = float(np.std(plain))
    assert np.mean(fast) == pytest.approx(np.mean(plain), abs=0.03 * spread)
    assert np.std(fast) == pytest.approx(spread, rel=0.03)
    for percent in (2.5, 5, 50, 95, 97.5):
        # Shares and not places, which may lie far apart where few means fall.
        below = np.mean(fast <= np.percentile(plain, percent))
        assert below == pytest.approx(percent / 100, abs=0.02)


def test_all_resamples_of_a_tiny_case() -> None:
    # Two conversations of one question each: 0, 0.5, 0.5, 1 are equally likely.
    means = resampled_means([0.0, 1.0], ["a", "b"], seed=1, resamples=20000)
    shares = {value: np.mean(means == value) for value in (0.0, 0.5, 1.0)}
    assert shares[0.0] == pytest.approx(0.25, abs=0.02)
    assert shares[0.5] == pytest.approx(0.5, abs=0.02)
    assert shares[1.0] == pytest.approx(0.25, abs=0.02)
    # One conversation of three: all 27 draws, enumerated.
    exact = sorted(statistics.fmean(draw) for draw in product([0.0, 1.0, 5.0], repeat=3))
    means = resampled_means([0.0, 1.0, 5.0], ["a"] * 3, seed=2, resamples=40000)
    assert np.mean(means) == pytest.approx(2.0, abs=0.03)
    assert np.var(means) == pytest.approx(statistics.pvariance(exact), rel=0.03)


def test_estimate_by_hand() -> None:
    same = estimate([0.25] * 9, list("aaabbbccc"), seed=0)
    assert (same.mean, same.low, same.high, same.count) == (0.25, 0.25, 0.25, 9)
    # Conversations that agree within and differ between: the interval must see the latter.
    between = estimate([0.0] * 50 + [1.0] * 50, ["a"] * 50 + ["b"] * 50, seed=0)
    assert between.mean == 0.5
    assert (between.low, between.high) == (0.0, 1.0)


def test_the_same_seed_gives_the_same_interval() -> None:
    draw = random.Random(4)
    values = [draw.random() for _ in range(30)]
    assert estimate(values, ["a"] * 30, 7) == estimate(values, ["a"] * 30, 7)
    assert estimate(values, ["a"] * 30, 7) != estimate(values, ["a"] * 30, 8)


def test_non_inferiority_pairs_question_by_question() -> None:
    # Scores that differ much between questions and by nothing between arms.
    text = [float(i % 2) for i in range(40)]
    same = non_inferiority(text, text, ["a"] * 40, margin=0.01, larger_is_better=True, seed=0)
    assert same.shown
    assert same.gain.mean == same.worst == 0
    assert same.p_value == pytest.approx(1 / 5001)
    # The same scores of other questions: equal means, and nothing is shown.
    moved = text[1:] + text[:1]
    other = non_inferiority(moved, text, ["a"] * 40, margin=0.01, larger_is_better=True, seed=0)
    assert other.gain.mean == 0
    assert not other.shown
    assert other.worst < -0.1


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_a_constant_loss_is_shown_to_be_within_the_margin_or_not(larger_is_better: bool) -> None:
    sign = 1 if larger_is_better else -1
    text = [0.1 * i for i in range(20)]
    arm = [value - sign * 0.02 for value in text]

    def shown(margin: float) -> bool:
        return non_inferiority(
            arm, text, ["a"] * 20, margin=margin, larger_is_better=larger_is_better, seed=0
        ).shown

    assert shown(0.03)
    assert not shown(0.01)


def test_a_true_loss_is_hardly_ever_called_none() -> None:
    """At a true loss of exactly the margin, about 5 % of all tests may show it; somewhat more with
    few conversations that differ much."""
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = np.random.default_rng(seed)
    groups = [f"c{i}" for i in range(20) for _ in range(10)]
    wrong = 0
    for number in range(300):
        arm = draw.normal(-0.1, 1, 200) + np.repeat(draw.normal(0, 1, 20), 10)
        test = non_inferiority(
            list(arm), [0.0] * 200, groups, margin=0.1, larger_is_better=True, seed=number,
            resamples=400,
        )  # fmt: skip
        wrong += test.shown
    assert 0 < wrong <= 40
