"""Estimates the level and the drift of a correlated series, with the uncertainty of its correlation.

The model of the log ratio y of treatment and control in n blocks is a straight line plus noise:

    y[i] = level + drift * (i/n - 1/2) + noise[i].

The noise is an AR(1) process whose correlation falls by e in `time` blocks, plus a share of white noise. Neither is
known, and the data of an hour say little about `time`. So each pair of a grid is fitted by generalised least squares
and weighted by its restricted likelihood (Harville, Biometrika 1974; Zellner and Tiao, JASA 1964, for the mixture): a
quantile is that of the mixture of Student's t. `time` goes up to 18 blocks, or 0.3 of a longer series. Its prior is
that of Jeffreys for the rate 1/time of an Ornstein-Uhlenbeck process, (1/time)^-1/2.
For short series it is log-uniform, which counts long times more. A longer limit would make every interval of an hour
useless: nobody can tell noise that keeps its value for an hour from a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

MAX_POINTS = 120  # longer series are averaged to so many, because the work grows with the square
_TIMES = 16  # points of the grid
_SHORTEST, _LONGEST, _LONGEST_SHARE = 0.3, 18.0, 0.3  # in blocks, in blocks, and in lengths of the series
_WHITE = (0.0, 0.3)  # shares of the variance
_SHORT = 60  # blocks; shorter series hardly know their correlation, so their prior counts long times more


@dataclass(frozen=True)
class LevelFit:
    """The fit of a series: a mixture over the grid of noise models.

    Attributes:
        weights: (models,) array, of sum 1.
        level, drift: (models,) arrays: estimates of each model. drift is the change over the whole series.
        covariance: (models, 2, 2) array of (level, drift).
        freedom: degrees of freedom of Student's t.
    """

    weights: Array
    level: Array
    drift: Array
    covariance: Array
    freedom: int

    def middle(self) -> float:
        """The estimate of the level in the middle of the series."""
        return float(self.weights @ self.level)

    def quantile(self, probability: float, of_level: float, of_drift: float, allowed: float = 0.0) -> float:
        """A quantile of `of_level * level + of_drift * drift`.

        Args:
            probability: between 0 and 1.
            of_level, of_drift: 1 and -0.5 give the beginning of the series, 1 and 0.5 its end, 0 and 1 the drift.
            allowed: standard deviation of a further error that the values do not show.
        """
        import numpy as np
        from scipy import optimize, special

        contrast = np.array([of_level, of_drift])
        centre = of_level * self.level + of_drift * self.drift
        scale = np.sqrt(np.einsum("i,gij,j->g", contrast, self.covariance, contrast) + allowed**2)
        reach = float(special.stdtrit(self.freedom, 1 - min(probability, 1 - probability) / 2)) + 1

        def excess(value: float) -> float:
            return float(self.weights @ special.stdtr(self.freedom, (value - centre) / scale)) - probability

        low, high = float((centre - reach * scale).min()), float((centre + reach * scale).max())
        return float(optimize.brentq(excess, low, high, xtol=1e-9))


def fit_level(values: Array) -> LevelFit:
    """Fit a series whose values are not all equal.

    Args:
        values: (n,) array, one for each block, in the order of time. More than MAX_POINTS are averaged to so many.
    """
    import numpy as np

    blocks = len(values)
    count = min(blocks, MAX_POINTS)
    values = np.array([part.mean() for part in np.array_split(values, count)])
    longest = max(_LONGEST * count / blocks, _LONGEST_SHARE * count)
    residual, estimate, covariance, log_det = _models(count, longest, blocks < _SHORT)
    squares = np.maximum(np.einsum("i,gij,j->g", values, residual, values), 1e-300)
    log_likelihood = -0.5 * log_det - 0.5 * (count - 2) * np.log(squares)
    weights = np.exp(log_likelihood - log_likelihood.max())
    found = estimate @ values
    covariance = covariance * (squares / (count - 2))[:, None, None]
    return LevelFit(weights / weights.sum(), found[:, 0], found[:, 1], covariance, count - 2)


@lru_cache(maxsize=8)
def _models(count: int, longest: float, short: bool) -> tuple[Array, Array, Array, Array]:
    """The parts of a fit that do not depend on the values, for each noise model.

    Args:
        count: n, the length of the series.
        longest: correlation time of the grid, in points.

    Returns:
        (models, n, n) matrices of the residual sum of squares, (models, 2, n) of the estimates, (models, 2, 2)
        covariances for a variance of 1, and (models,) log determinants of the restricted likelihood with the prior.
    """
    import numpy as np

    at = np.arange(count)
    design = np.column_stack([np.ones(count), (at + 0.5) / count - 0.5])
    apart = np.abs(at[:, None] - at[None, :])
    parts: list[tuple[Any, ...]] = []
    for time in np.geomspace(_SHORTEST, longest, _TIMES):
        for white in _WHITE:
            noise = (1 - white) * np.exp(-apart / time) + white * np.eye(count)
            inverse = np.linalg.inv(noise)
            weighted = inverse @ design
            information = design.T @ weighted
            covariance = np.linalg.inv(information)
            log_det = np.linalg.slogdet(noise)[1] + np.linalg.slogdet(information)[1]
            log_det += 0 if short else np.log(time)  # the prior; the grid is even in log(time)
            parts.append((inverse - weighted @ covariance @ weighted.T, covariance @ weighted.T, covariance, log_det))
    residual, estimate, covariances, log_dets = (np.array(part) for part in zip(*parts, strict=True))
    return residual, estimate, covariances, log_dets
