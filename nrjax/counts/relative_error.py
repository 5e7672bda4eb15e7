"""When a noisy count is good enough: an error that is small beside the count itself."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check_probability
from nrjax.pytrees import Pytree
from nrjax.types import NoiseProcess, Utility


class RelativeError(Pytree):
    """Accept a noisy count once its noise is likely to be within `alpha` of the count.

    The rule of Rogers 2023, section 7.2: with noise of standard deviation d a noisy count y is
    accepted when `1 - alpha < |(y + d)/(y - d)| <= 1 + alpha` and `|y| > d`. That is the same as
    `y >= upper d` or `y < -lower d`, with `upper = (2 + alpha)/alpha`, `lower = (2 - alpha)/alpha`.
    It looks only at releases, so it costs no privacy.

    Attributes:
        alpha: relative error, scalar, strictly between 0 and 1.

    Raises:
        ValueError: `alpha` is not strictly between 0 and 1.
    """

    alpha: ArrayLike

    def __post_init__(self):
        check_probability("alpha", self.alpha)

    @property
    def upper(self) -> Any:
        """How many deviations a count above zero must have, `(2 + alpha)/alpha`."""
        return (2 + self.alpha) / self.alpha

    @property
    def lower(self) -> Any:
        """How many deviations a count below zero must have, `(2 - alpha)/alpha`."""
        return (2 - self.alpha) / self.alpha

    def accepts(self, noisy: ArrayLike, deviation: ArrayLike) -> Array:
        """Whether a noisy count is good enough, given its noise's deviation (bool, elementwise).

        Only the quotient of the two matters.
        """
        noisy, deviation = jnp.asarray(noisy), jnp.asarray(deviation)
        return (noisy >= self.upper * deviation) | (noisy < -self.lower * deviation)

    def precise(self, error: ArrayLike, count: ArrayLike) -> Array:
        """Whether noise is as small as was asked for: `|error| <= alpha count` (bool)."""
        return jnp.abs(jnp.asarray(error)) <= self.alpha * jnp.asarray(count)

    def utility(self, process: NoiseProcess, times: ArrayLike) -> "Margin":
        """The rule as a utility for `nrjax.simulate`, with `PublicThreshold(0)`.

        Args:
            process: whose noise it is; its shape must be ().
            times: the schedule's times, shape (steps,).
        """
        return Margin(self, process.deviation(times))


class Margin(Utility):
    """How far a noisy count is on the accepted side of `RelativeError`, in deviations.

    A utility for a schedule of fixed times, because the deviation differs from step to step. At
    least 0 where the rule accepts.

    Attributes:
        accuracy: the rule.
        deviations: standard deviation of the noise at each step, shape (steps,); or of one step,
            a scalar.
    """

    accuracy: RelativeError
    deviations: Any

    def at(self, step: Array) -> "Margin":
        """The utility of a step."""
        return Margin(self.accuracy, jnp.asarray(self.deviations)[step])

    def evaluate(self, hypothesis: Array) -> Array:
        """Largest of `y/d - upper` and `-y/d - lower`, a scalar."""
        scaled = hypothesis / self.deviations
        return jnp.maximum(scaled - self.accuracy.upper, -scaled - self.accuracy.lower)
