"""Effects and noise of the folds at a rung, and the paired test that prunes trials before all their folds.

The model of a value is additive: value = trial + fold + noise. A fold is easy or difficult for all trials, so the plain
mean over two easy folds would look better than a mean over all folds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from statistics import fmean, variance

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MIN_TRIALS = 5  # trials with all folds from which the distribution of variances is estimated
ROUNDING = 1e-6  # relative error of a metric, which is computed in float32
SMALLEST_VARIANCE = 1e-5  # times the median variance, because a variance of 0 has no logarithm


@dataclass(frozen=True)
class FoldEffects:
    """Effect of each fold at a rung; the sum of the effects is 0."""

    effects: tuple[float, ...] = ()  # effects of the folds that the reference trials have, by fold

    @classmethod
    def of(cls, trials: Sequence[Sequence[float]]) -> "FoldEffects":
        """Estimate the effects from the finite values of each trial's leading folds; only the longest rows count."""
        most = max(map(len, trials), default=0)
        reference = [values for values in trials if len(values) == most]
        return cls(tuple(median_effects(np.array(reference)).tolist())) if most else cls()

    def adjusted(self, values: Mapping[int, float]) -> list[float]:
        """Return the values of some folds, by number of the fold, without the effects of the folds."""
        return [
            value - (self.effects[fold] if fold < len(self.effects) else 0.0)
            for fold, value in values.items()
        ]

    def adjusted_mean(self, values: Mapping[int, float]) -> float:
        """Return the mean of a trial over all folds, estimated from some folds, by number of the fold."""
        # The effects of all folds have the sum 0; without them, the mean has no rounding error.
        return fmean(self.adjusted(values) if len(values) < len(self.effects) else values.values())


def median_effects(values: np.ndarray) -> np.ndarray:
    """Return the effect of each fold, (folds,): the median deviation from the means of the trials, minus its mean.

    A median, because a few very poor trials must not decide how difficult a fold is. `values`: finite, (trials, folds).
    """
    deviations = np.median(values - values.mean(axis=1, keepdims=True), axis=0)
    return np.asarray(deviations - deviations.mean())


@dataclass(frozen=True)
class FoldNoise:
    """Distribution of the variances of trials between folds: the prior of Smyth (2004, limma)."""

    effects: tuple[float, ...] = ()  # effect of each fold; empty with fewer than MIN_TRIALS trials
    variance: float = 0.0  # variance of a typical trial
    dof: float = 0.0  # number of degrees of freedom that `variance` counts for; 0: unknown

    @classmethod
    def of(cls, trials: Sequence[Sequence[float]]) -> "FoldNoise":
        """Return the noise of trials that have all folds, (trials, folds)."""
        if len(trials) < MIN_TRIALS:
            return cls()
        values = np.array(trials)
        effects = median_effects(values)
        rest = values - values.mean(axis=1, keepdims=True) - effects
        count, folds = values.shape
        # The effects are estimated from the same values.
        variances = np.square(rest).sum(axis=1) / (folds - 1) * count / (count - 1)
        variances[variances <= rounding_variance(values)] = 0.0
        return cls(tuple(effects.tolist()), *_prior(variances, folds - 1))

    def moderated_variance(self, values: Sequence[float]) -> tuple[float, float]:
        """Return variance and degrees of freedom of a trial with two or more leading folds (Smyth 2004, section 3)."""
        rest = np.array(values) - self.effects[: len(values)]
        own = len(values) - 1
        squares = float(np.square(rest - rest.mean()).sum())
        return (self.dof * self.variance + squares) / (self.dof + own), self.dof + own


def rounding_variance(values: Sequence[float] | Array) -> float:
    """Return the variance below which values of this size are equal."""
    return float(np.square(ROUNDING * np.abs(np.asarray(values)).max()))


def _prior(variances: Array, dof: int) -> tuple[float, float]:
    """Return variance and degrees of freedom of the prior (Smyth 2004, section 6.2); `dof`: of each variance."""
    from scipy.special import digamma, polygamma

    if not variances.any():
        return 0.0, 0.0
    logarithms = np.log(np.maximum(variances, SMALLEST_VARIANCE * np.median(variances[variances > 0])))
    logarithms -= digamma(dof / 2) - np.log(dof / 2)
    # At most the degrees of freedom of all trials together.
    most = float((len(variances) - 1) * dof)
    spread = float(logarithms.var(ddof=1) - polygamma(1, dof / 2))
    if spread <= 0:
        return float(np.exp(logarithms.mean())), most
    half = _inverse_trigamma(spread)
    return float(np.exp(logarithms.mean() + digamma(half) - np.log(half))), min(2 * half, most)


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value, by Newton's method (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = polygamma(1, x)
        step = trigamma * (1 - trigamma / value) / polygamma(2, x)
        x += step
        if -step < 1e-8 * x:
            break
    return float(x)


def pruning_p_value(values: Sequence[float], leader: Sequence[float], trials: int, noise: FoldNoise) -> float:
    """Return the p-value of "the trial is as good as the leader", for all looks and the choice of the leader.

    The trial is tested after each fold from the second to the last but one, and the leader was chosen as the best
    of several trials: the probability of any false rejection is at most the sum of the probabilities of all looks
    and trials (Bonferroni).

    Args:
        values: values of the leading folds of the trial, two or more; smaller is better.
        leader: values of all folds of the leader.
        trials: number of trials from which the leader was chosen.
    """
    looks = max(1, len(leader) - 2)
    return min(1.0, trials * looks * paired_p_value(values, leader, noise))


def paired_p_value(values: Sequence[float], leader: Sequence[float], noise: FoldNoise) -> float:
    """Return the p-value of the mean difference of two given trials: corrected paired t-test, one-sided.

    The training sets of the folds overlap, so that a plain t-test is overconfident. The variance of the mean
    is (1/n + 1/(k-1)) s^2 instead of s^2/n (Nadeau and Bengio 2003, section 3; n_test/n_train = 1/(k-1)).
    The p-value of Wilcoxon's signed-rank test cannot fall below 1/2^n.
    """
    differences = list(map(sub, values, leader))
    spread, dof = _variance(differences, values, leader, noise)
    # Equal differences are no evidence: rounded metrics give them by chance.
    if spread <= rounding_variance([*values, *leader]):
        return 1.0
    from scipy.special import stdtr  # imported here because it takes 0.1 s and only pruning needs it

    error = math.sqrt(spread * (1 / len(values) + 1 / (len(leader) - 1)))
    return float(stdtr(dof, -fmean(differences) / error))


def _variance(
    differences: Sequence[float], values: Sequence[float], leader: Sequence[float], noise: FoldNoise
) -> tuple[float, float]:
    """Return variance and degrees of freedom of the differences by fold; only these count if the noise is unknown."""
    own = variance(differences)
    if not noise.dof:
        return own, len(differences) - 1
    parts = [noise.moderated_variance(each) for each in (values, leader)]
    both = sum(part for part, _ in parts)
    # Satterthwaite (1946).
    dof = both**2 / sum(part**2 / freedom for part, freedom in parts)
    # A trial with more noise than all others must not be tested with the noise of the others.
    return max(both, own), dof
