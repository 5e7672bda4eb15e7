"""How far below its threshold an accepted utility can be: the private tests' accuracy.

A union bound over the steps (`docs/mathematics.md`): the probability of accepting a bad utility
anywhere is at most `gamma` if step n is allowed `gamma * share_n`, the shares summing to at most 1.
The epsilons may be chosen from the releases. The noise is the stated one: the rules make theirs
wider by `40 + 64/epsilon` machine epsilons (8e-5 at an epsilon of 0.1 in float32, 0.8 % at 0.001),
and shortfalls are larger by as much. All functions are elementwise, and take:

* `shortfall`: threshold minus utility; `sensitivity`: Delta, in the same units, > 0;
* `epsilon`: the test's at that step, > 0;
* `gamma`: probability of failure over all steps, in (0, 1), of which `share`, in (0, 1], is this
  step's: `1/T` for each of T equal `steps`;
* `noise`: the test's, "laplace" or "exponential", of the usual split.

A concrete argument that is out of range is a `ValueError`.
"""

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._validation import check, check_numbers, check_positive, check_probability

Noise = Literal["laplace", "exponential"]


def acceptance_probability(
    shortfall: ArrayLike, epsilon: ArrayLike, sensitivity: ArrayLike, noise: Noise = "laplace"
) -> Array:
    """Probability of a yes to a utility so far below its threshold (if negative, above it).

    With `y = exp(-eps |eta|/(4 Delta))`, for a shortfall eta >= 0: `(2/3) y - y^2/6` for Laplace
    noise, `(2/3) y` for exponential noise. For eta < 0 a no has the probability `(2/3) y - y^2/6`,
    or `y^2/3`.
    """
    distance, epsilon, sensitivity = _checked(
        noise, distance=shortfall, epsilon=epsilon, sensitivity=sensitivity
    )
    decay = jnp.exp(-jnp.abs(distance) * epsilon / (4 * sensitivity))
    if noise == "exponential":
        return jnp.where(distance < 0, 1 - decay * decay / 3, decay * (2 / 3))
    tail = decay * (4 - decay) / 6
    return jnp.where(distance < 0, 1 - tail, tail)


def shortfall(
    epsilon: ArrayLike,
    sensitivity: ArrayLike,
    gamma: ArrayLike,
    share: ArrayLike = 1.0,
    noise: Noise = "laplace",
) -> Array:
    """Shortfall that a step exceeds with probability `gamma * share`; the sharper bound.

    `(4 Delta/eps) log(2/(3 gamma share))` for exponential noise and, for Laplace noise, little
    below it: the exact solution of `acceptance_probability(eta) = gamma * share`, or 0 where that
    is below 0.
    """
    epsilon, sensitivity, gamma, share = _checked(
        noise, epsilon=epsilon, sensitivity=sensitivity, gamma=gamma, share=share
    )
    if noise == "exponential":
        decay = jnp.minimum(1.5 * gamma * share, 1)
    else:  # the y with `y (4 - y)/6 = gamma * share`, both below 1
        allowed = jnp.minimum(gamma * share, 0.5)
        decay = 6 * allowed / (2 + jnp.sqrt(4 - 6 * allowed))
    return (4 * sensitivity / epsilon) * -jnp.log(decay)


def surplus(
    epsilon: ArrayLike, sensitivity: ArrayLike, refusal: ArrayLike, noise: Noise = "laplace"
) -> Array:
    """How far above its threshold a utility is that a step refuses with probability `refusal`.

    For Laplace noise it is the `shortfall` of that probability; exponential noise, which is not
    centred, has `(2 Delta/eps) log(1/(3 refusal))`, little more than half of it. 0 if below 0.
    """
    epsilon, sensitivity, refusal = _checked(
        noise, epsilon=epsilon, sensitivity=sensitivity, refusal=refusal
    )
    if noise == "laplace":
        return _shortfall(epsilon, sensitivity, refusal)
    return (2 * sensitivity / epsilon) * -jnp.log(jnp.minimum(3 * refusal, 1))


_shortfall = shortfall  # where an argument has its name


def epsilon_for_shortfall(
    shortfall: ArrayLike,
    sensitivity: ArrayLike,
    gamma: ArrayLike,
    share: ArrayLike = 1.0,
    noise: Noise = "laplace",
) -> Array:
    """Smallest epsilon whose `shortfall` is this: their product is a constant.

    For Ligett 2017, Algorithm 3, whose shortfall is `alpha/2`, at most
    `8 Delta log(2T/(3 gamma))/alpha`; the paper has twice as much and more (`ligett_epsilon`).
    """
    _checked(shortfall=shortfall)
    return _shortfall(shortfall, sensitivity, gamma, share, noise)


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


def _checked(noise: str = "laplace", **values: ArrayLike) -> list[Array]:
    """Arguments in one dtype, those of known names in their range."""
    check(noise in ("laplace", "exponential"), "noise", noise, "'laplace' or 'exponential'")
    for name, value in values.items():
        if name in ("shortfall", "epsilon", "sensitivity"):
            check_positive(name, value)
        elif name in ("gamma", "refusal"):
            check_probability(name, value)
        elif name == "share":
            check_numbers(name, value, lambda n: (n > 0) & (n <= 1), "above 0 and at most 1")
        elif name == "steps":
            check_numbers(name, value, lambda n: (n >= 1) & (n < jnp.inf), "at least 1")
    dtype = float_dtype(*values.values())
    return [jnp.asarray(value, dtype) for value in values.values()]
