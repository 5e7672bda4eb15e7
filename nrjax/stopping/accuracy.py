"""Accuracy of the private tests: how far below the threshold an accepted utility can be.

A union bound over the steps (`docs/mathematics.md`): the probability of accepting a bad utility at
any step is at most `gamma` if step n fails with probability at most `gamma * share_n`, and the
shares sum to at most 1. The epsilons may be chosen from the releases. The formulas are for the
ideal noise. The rules widen theirs by `40 + 64/epsilon` machine epsilons, so that shortfalls are
larger by 8e-5 of themselves at an epsilon of 0.1 in float32, and by 0.8 % at 0.001.

All functions are elementwise, and raise a ValueError for concrete arguments out of range:

* `gap`: threshold minus utility, in units of the utility;
* `sensitivity`: Delta, in units of the utility, > 0;
* `epsilon`: privacy level of the test at that step, > 0;
* `gamma`: probability of failure over all steps, in (0, 1);
* `share`: the fraction of `gamma` for one step, in (0, 1], such as `1/T` for T `steps`;
* `noise`: "laplace" or "exponential", with half of epsilon for the threshold noise.
"""

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._validation import check, check_numbers, check_positive, check_probability

Noise = Literal["laplace", "exponential"]


def acceptance_probability(
    gap: ArrayLike, epsilon: ArrayLike, sensitivity: ArrayLike, noise: Noise = "laplace"
) -> Array:
    """Return the probability of a positive answer to a utility `gap` below its threshold.

    With `y = exp(-eps |gap|/(4 Delta))`, it is `(2/3) y - y^2/6` for Laplace noise and `(2/3) y`
    for exponential noise if `gap >= 0`. A utility above its threshold (`gap < 0`) gets a negative
    answer with probability `(2/3) y - y^2/6` or `y^2/3`.
    """
    signed, epsilon, sensitivity = _checked(
        noise, signed=gap, epsilon=epsilon, sensitivity=sensitivity
    )
    decay = jnp.exp(-jnp.abs(signed) * epsilon / (4 * sensitivity))
    if noise == "exponential":
        return jnp.where(signed < 0, 1 - decay * decay / 3, decay * (2 / 3))
    tail = decay * (4 - decay) / 6
    return jnp.where(signed < 0, 1 - tail, tail)


def shortfall(
    epsilon: ArrayLike,
    sensitivity: ArrayLike,
    gamma: ArrayLike,
    share: ArrayLike = 1.0,
    noise: Noise = "laplace",
) -> Array:
    """Return the gap at which a step accepts with probability `gamma * share`.

    It is the exact solution of `acceptance_probability(gap) = gamma * share`, or 0 if that is
    negative: `(4 Delta/eps) log(2/(3 gamma share))` for exponential noise, and a little less for
    Laplace noise. It is sharper than the bounds of the papers, below.
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
    """Return how far above its threshold a utility is refused with probability `refusal`.

    For Laplace noise it equals the `shortfall` of that probability. For exponential noise, which is
    not centred, it is `(2 Delta/eps) log(1/(3 refusal))`, about half as large, or 0 if that is
    negative.
    """
    epsilon, sensitivity, refusal = _checked(
        noise, epsilon=epsilon, sensitivity=sensitivity, refusal=refusal
    )
    if noise == "laplace":
        return shortfall(epsilon, sensitivity, refusal)
    return (2 * sensitivity / epsilon) * -jnp.log(jnp.minimum(3 * refusal, 1))


def epsilon_for_shortfall(
    gap: ArrayLike,
    sensitivity: ArrayLike,
    gamma: ArrayLike,
    share: ArrayLike = 1.0,
    noise: Noise = "laplace",
) -> Array:
    """Return the smallest epsilon whose `shortfall` is `gap`.

    For Algorithm 3 of Ligett 2017, where the gap is `alpha/2`, it is at most
    `8 Delta log(2T/(3 gamma))/alpha`; `ligett_epsilon`, as in the paper, is more than twice that.
    """
    _checked(gap=gap)
    return shortfall(gap, sensitivity, gamma, share, noise)  # epsilon * shortfall is a constant


def whitehouse_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, share: ArrayLike
) -> Array:
    """Return `(4 Delta/eps) (log(2/gamma) - log(share))` (Whitehouse 2022, Proposition C.1).

    The bound is true (the probability of failure is at most `gamma/3`), although its proof, which
    bounds both noises by half of it, would need twice as much. `share` is the paper's `p_n`.
    """
    epsilon, sensitivity, gamma, share = _checked(
        epsilon=epsilon, sensitivity=sensitivity, gamma=gamma, share=share
    )
    return (4 * sensitivity / epsilon) * (jnp.log(2 / gamma) - jnp.log(share))


def ligett_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """Return `8 Delta (log(T) + log(2/gamma))/eps` for T steps (Ligett 2017, Theorem A.1)."""
    (count,) = _checked(steps=steps)
    return 2 * whitehouse_shortfall(epsilon, sensitivity, gamma, 1 / count)


def ligett_epsilon(
    gap: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """Return the epsilon whose `ligett_shortfall` is `gap`.

    It is `8 Delta (log(T) + log(2/gamma))/gap`. For a gap of `alpha/2` it is the
    `eps_0 = 16 Delta log(2T/gamma)/alpha` of Algorithm 3.
    """
    _checked(gap=gap)
    return ligett_shortfall(gap, sensitivity, gamma, steps)


def _checked(noise: str = "laplace", **values: ArrayLike) -> list[Array]:
    """Return arguments cast to one dtype, after a check of the range of each."""
    check(noise in ("laplace", "exponential"), "noise", noise, "'laplace' or 'exponential'")
    for name, value in values.items():
        if name in ("gap", "epsilon", "sensitivity"):
            check_positive(name, value)
        elif name in ("gamma", "refusal"):
            check_probability(name, value)
        elif name == "share":
            check_numbers(name, value, lambda n: (n > 0) & (n <= 1), "above 0 and at most 1")
        elif name == "steps":
            check_numbers(name, value, lambda n: (n >= 1) & (n < jnp.inf), "at least 1")
    dtype = float_dtype(*values.values())
    return [jnp.asarray(value, dtype) for value in values.values()]
