"""How far below its threshold an accepted utility can be: the private tests' accuracy.

A test says yes to a utility `shortfall` below its threshold only if the query noise
`xi ~ Lap(4 Delta/eps)` exceeds the threshold noise `zeta ~ Lap(2 Delta/eps)` by that much, whatever
the other answers were. It says no to one as far above with the same probability. A union
bound over the steps gives the rest, and is its only slack: the probability of accepting a bad
utility anywhere is at most `gamma` if step n is allowed `gamma * share_n`, the shares summing to at
most 1.

The epsilons may be chosen from the releases: these are independent of the test's noise, and given
them all is fixed, the shortfalls included. All functions are elementwise.
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, concrete, float_dtype


def acceptance_probability(
    shortfall: ArrayLike, epsilon: ArrayLike, sensitivity: ArrayLike
) -> Array:
    """`P(xi - zeta > shortfall)`: a yes to a utility so far below its threshold.

    `(2/3) exp(-eps eta/(4 Delta)) - (1/6) exp(-eps eta/(2 Delta))` for a shortfall eta >= 0, by
    convolving the two densities.

    Args:
        shortfall: threshold minus utility; negative where the utility is above.
        epsilon: the test's, at that step.
        sensitivity: Delta, in the units of the shortfall.

    Raises:
        ValueError: a concrete argument is out of range.
    """
    _check_positive(epsilon=epsilon, sensitivity=sensitivity)
    distance, epsilon, sensitivity = _together(shortfall, epsilon, sensitivity)
    decay = jnp.exp(-jnp.abs(distance) * epsilon / (4 * sensitivity))
    tail = decay * (4 - decay) / 6
    return jnp.where(distance < 0, 1 - tail, tail)


def shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, share: ArrayLike = 1.0
) -> Array:
    """Shortfall that a step exceeds with probability `gamma * share`; the sharper bound.

    At most `(4 Delta/eps) log(2/(3 gamma share))`, and little below it: the exact solution of
    `acceptance_probability(eta) = gamma * share`, or 0 where that is 1/2 or more. With shares
    `1/T`, except with probability gamma no utility below the threshold by more is accepted in T
    steps.

    Args:
        epsilon: the test's, at that step.
        sensitivity: Delta.
        gamma: probability of failure over all steps.
        share: this step's share of gamma, in (0, 1]; `1/T` for T equal steps.

    Returns:
        The shortfall, in the units of the sensitivity.

    Raises:
        ValueError: a concrete argument is out of range.
    """
    _check_positive(epsilon=epsilon, sensitivity=sensitivity)
    epsilon, sensitivity, gamma, share = _together(
        epsilon, sensitivity, *_checked_failure(gamma, share)
    )
    return (4 * sensitivity / epsilon) * _depth(gamma, share)


def epsilon_for_shortfall(
    shortfall: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, share: ArrayLike = 1.0
) -> Array:
    """Smallest epsilon whose `shortfall` is this; arguments and errors as there.

    For Ligett 2017, Algorithm 3, with its threshold at `-alpha/2` on minus the excess risk, the
    shortfall is `alpha/2`: at most `8 Delta log(2T/(3 gamma))/alpha`, where the paper has
    `16 Delta log(2T/gamma)/alpha` (`ligett_epsilon`).
    """
    _check_positive(shortfall=shortfall, sensitivity=sensitivity)
    shortfall, sensitivity, gamma, share = _together(
        shortfall, sensitivity, *_checked_failure(gamma, share)
    )
    return (4 * sensitivity / shortfall) * _depth(gamma, share)


def whitehouse_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, share: ArrayLike
) -> Array:
    """`(4 Delta/eps) (log(2/gamma) - log(share))` (Whitehouse 2022, Proposition C.1).

    True, although its proof, which bounds both noises by half of it, would need twice as much: the
    probability of failure is at most `gamma/3`. Arguments and errors as for `shortfall`; `share`
    is the paper's `p_n`.
    """
    _check_positive(epsilon=epsilon, sensitivity=sensitivity)
    epsilon, sensitivity, gamma, share = _together(
        epsilon, sensitivity, *_checked_failure(gamma, share)
    )
    return (4 * sensitivity / epsilon) * (jnp.log(2 / gamma) - jnp.log(share))


def ligett_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """`8 Delta (log(T) + log(2/gamma))/eps` for T steps at one epsilon (Ligett 2017, Theorem A.1).

    Arguments and errors as for `shortfall`, and `steps`, at least 1.
    """
    _check_positive(epsilon=epsilon, sensitivity=sensitivity)
    return 2 * whitehouse_shortfall(epsilon, sensitivity, gamma, _share(steps))


def ligett_epsilon(
    shortfall: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """`8 Delta (log(T) + log(2/gamma))/shortfall`, the inverse of `ligett_shortfall`.

    The `eps_0 = 16 Delta log(2T/gamma)/alpha` of Algorithm 3 is this for a shortfall of `alpha/2`.
    """
    _check_positive(shortfall=shortfall, sensitivity=sensitivity)
    return 2 * whitehouse_shortfall(shortfall, sensitivity, gamma, _share(steps))


def _depth(gamma: Array, share: Array) -> Array:
    """Minus log of the y with `y (4 - y)/6 = gamma * share`, both below 1."""
    allowed = jnp.minimum(gamma * share, 0.5)
    return -jnp.log(6 * allowed / (2 + jnp.sqrt(4 - 6 * allowed)))


def _together(*values: ArrayLike) -> list[Array]:
    dtype = float_dtype(*values)
    return [jnp.asarray(value, dtype) for value in values]


def _check_positive(**values: ArrayLike) -> None:
    for name, value in values.items():
        number = concrete(value)
        if number is not None:
            check((number > 0) & (number < jnp.inf), name, value, "positive and finite")


def _checked_failure(gamma: ArrayLike, share: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    number = concrete(gamma)
    if number is not None:
        check((number > 0) & (number < 1), "gamma", gamma, "strictly between 0 and 1")
    number = concrete(share)
    if number is not None:
        check((number > 0) & (number <= 1), "share", share, "above 0 and at most 1")
    return gamma, share


def _share(steps: ArrayLike) -> Array:
    number = concrete(steps)
    if number is not None:
        check((number >= 1) & (number < jnp.inf), "steps", steps, "at least 1")
    return 1 / jnp.asarray(steps, float_dtype(steps))
