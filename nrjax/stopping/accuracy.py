"""How far below its threshold an accepted utility can be: the private tests' accuracy.

A test says yes to a utility `shortfall` below its threshold only if the query noise
`xi ~ Lap(4 Delta/eps)` exceeds the threshold noise `zeta ~ Lap(2 Delta/eps)` by that much, whatever
the other answers were. It says no to one as far above with the same probability. A union
bound over the steps gives the rest, and is its only slack: the probability of accepting a bad
utility anywhere is at most `gamma` if step n is allowed `gamma * share_n`, the shares summing to at
most 1.

The epsilons may be chosen from the releases: these are independent of the test's noise, and given
them all is fixed, the shortfalls included. All functions are elementwise, and take:

* `shortfall`: threshold minus utility; `sensitivity`: Delta, in the same units, > 0;
* `epsilon`: the test's at that step, > 0;
* `gamma`: probability of failure over all steps, in (0, 1), of which `share`, in (0, 1], is this
  step's: `1/T` for each of T equal `steps`.

A concrete argument that is out of range is a `ValueError`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check_numbers, check_positive, check_probability, float_dtype

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "shortfall": check_positive,
    "epsilon": check_positive,
    "sensitivity": check_positive,
    "gamma": check_probability,
    "share": lambda name, value: check_numbers(
        name, value, lambda n: (n > 0) & (n <= 1), "above 0 and at most 1"
    ),
    "steps": lambda name, value: check_numbers(
        name, value, lambda n: (n >= 1) & (n < jnp.inf), "at least 1"
    ),
}


def _checked(**values: ArrayLike) -> list[Array]:
    """Arguments in one dtype, those of known names in their range."""
    for name, value in values.items():
        if name in _CHECKS:
            _CHECKS[name](name, value)
    dtype = float_dtype(*values.values())
    return [jnp.asarray(value, dtype) for value in values.values()]


def acceptance_probability(
    shortfall: ArrayLike, epsilon: ArrayLike, sensitivity: ArrayLike
) -> Array:
    """`P(xi - zeta > shortfall)`: a yes to a utility so far below its threshold.

    `(2/3) exp(-eps eta/(4 Delta)) - (1/6) exp(-eps eta/(2 Delta))` for a shortfall eta >= 0, by
    convolving the two densities; a negative one is that of a utility above.
    """
    distance, epsilon, sensitivity = _checked(
        distance=shortfall, epsilon=epsilon, sensitivity=sensitivity
    )
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
    """
    epsilon, sensitivity, gamma, share = _checked(
        epsilon=epsilon, sensitivity=sensitivity, gamma=gamma, share=share
    )
    return (4 * sensitivity / epsilon) * _depth(gamma, share)


def epsilon_for_shortfall(
    shortfall: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, share: ArrayLike = 1.0
) -> Array:
    """Smallest epsilon whose `shortfall` is this.

    For Ligett 2017, Algorithm 3, with its threshold at `-alpha/2` on minus the excess risk, the
    shortfall is `alpha/2`: at most `8 Delta log(2T/(3 gamma))/alpha`, where the paper has
    `16 Delta log(2T/gamma)/alpha` (`ligett_epsilon`).
    """
    shortfall, sensitivity, gamma, share = _checked(
        shortfall=shortfall, sensitivity=sensitivity, gamma=gamma, share=share
    )
    return (4 * sensitivity / shortfall) * _depth(gamma, share)


def whitehouse_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, share: ArrayLike
) -> Array:
    """`(4 Delta/eps) (log(2/gamma) - log(share))` (Whitehouse 2022, Proposition C.1).

    True, although its proof, which bounds both noises by half of it, would need twice as much: the
    probability of failure is at most `gamma/3`. `share` is the paper's `p_n`.
    """
    epsilon, sensitivity, gamma, share = _checked(
        epsilon=epsilon, sensitivity=sensitivity, gamma=gamma, share=share
    )
    return (4 * sensitivity / epsilon) * (jnp.log(2 / gamma) - jnp.log(share))


def ligett_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """`8 Delta (log(T) + log(2/gamma))/eps` for T steps at one epsilon (Ligett 2017, Thm A.1)."""
    (count,) = _checked(steps=steps)
    return 2 * whitehouse_shortfall(epsilon, sensitivity, gamma, 1 / count)


def ligett_epsilon(
    shortfall: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """`8 Delta (log(T) + log(2/gamma))/shortfall`, the inverse of `ligett_shortfall`.

    The `eps_0 = 16 Delta log(2T/gamma)/alpha` of Algorithm 3 is this for a shortfall of `alpha/2`.
    """
    _checked(shortfall=shortfall)
    return ligett_shortfall(shortfall, sensitivity, gamma, steps)


def _depth(gamma: Array, share: Array) -> Array:
    """Minus log of the y with `y (4 - y)/6 = gamma * share`, both below 1."""
    allowed = jnp.minimum(gamma * share, 0.5)
    return -jnp.log(6 * allowed / (2 + jnp.sqrt(4 - 6 * allowed)))
