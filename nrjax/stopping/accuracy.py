"""Accuracy of the private tests: how far below the threshold an accepted utility can be.

By a union bound over the steps (statement 18 of `docs/proofs`), the probability of accepting a bad
utility at any step is at most `gamma` if step n fails with probability at most `gamma * share_n`,
and the shares sum to at most 1. The epsilons may depend on the releases. The elementwise formulas
are for ideal noise. The rules widen their noise by `40 + 64/epsilon + 2 |threshold|/Delta` machine
epsilons. In float32 and at a threshold of 0 this makes shortfalls larger by a factor of 1.00008 at
an epsilon of 0.1, and of 1.008 at an epsilon of 0.001.

`private_test` sets up a test that meets a target. It and `first_level`, for a threshold of 0, use
the noise as the rule makes it. All other functions are elementwise. They raise a ValueError for
concrete arguments out of range. The arguments:

* `gap`: threshold minus utility, in units of the utility;
* `sensitivity`: Delta, the sensitivity of the utility, in units of the utility, > 0;
* `epsilon`: privacy level of the test at one step, > 0;
* `gamma`: probability of failure over all steps, in (0, 1);
* `share`: fraction of `gamma` that is allotted to one step, in (0, 1], such as `1/T` for T `steps`;
* `noise`: "laplace" or "exponential". Half of epsilon is for the threshold noise.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.fields import explain_fields
from nrjax._base.modes import neutral_config
from nrjax._base.numerics import in_unit, unit_of
from nrjax._base.validation import (
    OTHER_UNIT,
    as_table,
    check,
    check_choice,
    check_normal,
    check_number,
    check_numbers,
    check_positive,
    check_probability,
    concrete_or_none,
)
from nrjax.stopping.private import ReducedAboveThreshold

Noise = Literal["laplace", "exponential"]

MARGIN = 0.75
"""Default margin of a private test, as a fraction of the distance to the best score."""


@neutral_config()
def acceptance_probability(
    gap: ArrayLike, epsilon: ArrayLike, sensitivity: ArrayLike, noise: Noise = "laplace"
) -> Array:
    """Return the probability of a positive answer to a utility `gap` below its threshold.

    Let `y = exp(-eps |gap|/(4 Delta))`. If `gap >= 0`, the probability is `(2/3) y - y^2/6` for
    Laplace noise and `(2/3) y` for exponential noise. If `gap < 0`, the utility is above its
    threshold, and gets a negative answer with probability `(2/3) y - y^2/6` for Laplace noise and
    `y^2/3` for exponential noise.
    """
    signed, epsilon, sensitivity = _checked(
        noise, signed=gap, epsilon=epsilon, sensitivity=sensitivity
    )
    unit, _ = unit_of(sensitivity)
    decay = jnp.exp(-jnp.abs(in_unit(signed, unit)) * epsilon / (4 * in_unit(sensitivity, unit)))
    tail = _tail(decay, noise)
    negative = decay * decay / 3 if noise == "exponential" else tail
    return jnp.where(signed < 0, 1 - negative, tail)


def _tail(decay: Any, noise: Noise) -> Any:
    """Return the probability of a positive answer to a utility whose `decay` is y."""
    return decay * (2 / 3) if noise == "exponential" else decay * (4 - decay) / 6


@neutral_config()
def shortfall(
    epsilon: ArrayLike,
    sensitivity: ArrayLike,
    gamma: ArrayLike,
    share: ArrayLike = 1.0,
    noise: Noise = "laplace",
) -> Array:
    """Return the gap at which a test accepts a utility with probability `gamma * share`.

    It is the exact solution of `acceptance_probability(gap) = gamma * share`, or 0 if the solution
    is negative: `(4 Delta/eps) log(2/(3 gamma share))` for exponential noise, and a little less for
    Laplace noise. It is smaller than `whitehouse_shortfall` and `ligett_shortfall`.
    """
    epsilon, sensitivity, gamma, share = _checked(
        noise, epsilon=epsilon, sensitivity=sensitivity, gamma=gamma, share=share
    )
    return _shortfall(epsilon, sensitivity, gamma, share, noise)


def _shortfall(
    epsilon: Array, sensitivity: Array, gamma: Array, share: ArrayLike, noise: Noise
) -> Array:
    """Return `shortfall` of arguments that were checked."""
    if noise == "exponential":
        decay = jnp.minimum(1.5 * gamma * share, 1)
    else:  # the y with `y (4 - y)/6 = gamma * share`, both below 1
        allowed = jnp.minimum(gamma * share, 0.5)
        decay = 6 * allowed / (2 + jnp.sqrt(4 - 6 * allowed))
    return (4 * sensitivity / epsilon) * -jnp.log(decay)


@neutral_config()
def surplus(
    epsilon: ArrayLike, sensitivity: ArrayLike, refusal: ArrayLike, noise: Noise = "laplace"
) -> Array:
    """Return the excess over the threshold that is refused with probability `refusal`.

    The excess is utility minus threshold. For Laplace noise it equals the `shortfall` with
    `gamma = refusal`. For exponential noise, which is not centred, it is about half as large:
    `(2 Delta/eps) log(1/(3 refusal))`, or 0 if this is negative.
    """
    epsilon, sensitivity, refusal = _checked(
        noise, epsilon=epsilon, sensitivity=sensitivity, refusal=refusal
    )
    if noise == "laplace":
        return _shortfall(epsilon, sensitivity, refusal, 1.0, noise)
    return (2 * sensitivity / epsilon) * -jnp.log(jnp.minimum(3 * refusal, 1))


@neutral_config()
def epsilon_for_shortfall(
    gap: ArrayLike,
    sensitivity: ArrayLike,
    gamma: ArrayLike,
    share: ArrayLike = 1.0,
    noise: Noise = "laplace",
) -> Array:
    """Return the smallest epsilon at which `shortfall` is `gap`.

    For T steps and a gap of `alpha/2` (Ligett 2017, Algorithm 3), the result is at most
    `8 Delta log(2T/(3 gamma))/alpha`. The paper's formula, `ligett_epsilon`, is more than twice as
    large.
    """
    _checked(gap=gap)
    return shortfall(gap, sensitivity, gamma, share, noise)  # epsilon * shortfall is a constant


@neutral_config()
def first_level(
    epsilons: ArrayLike,
    margin: ArrayLike,
    sensitivity: ArrayLike,
    gamma: float = 0.1,
    noise: Noise = "laplace",
) -> int:
    """Return the first level at which the noise of a `ReducedAboveThreshold` fits a margin.

    A test that starts there accepts, at any level, a utility that is `margin` or more below its
    threshold with probability at most `gamma`, whatever the releases are (a union bound over the
    levels). To meet a target, set the threshold to target plus margin.

        >>> nrjax.stopping.accuracy.first_level(np.geomspace(0.1, 10, 50), 0.5, 0.01)
        10

    Args:
        epsilons: privacy levels of the test, rising, shape (levels,).
        margin: threshold minus the worst utility that may be accepted.
        sensitivity: Delta, the sensitivity of the utility.
        gamma: largest probability of accepting a worse utility.
        noise: "laplace" or "exponential".

    Raises:
        ValueError: the noise of the last level is too large for the margin.
    """
    rule = ReducedAboveThreshold(0.0, sensitivity, noise=noise)
    return _first_level(rule, as_table(epsilons), margin, gamma, float_dtype())


def _first_level(rule: Any, epsilons: ArrayLike, margin: Any, gamma: float, dtype: Any) -> int:
    """Return `first_level` for the noise that a rule makes in a dtype."""
    check_positive("epsilons", epsilons)
    check_positive("margin", margin)
    noise = rule.noise
    with jax.ensure_compile_time_eval(), np.errstate(over="ignore", under="ignore"):
        (levels,) = _checked(noise, epsilon=epsilons)
        scales = np.asarray(rule._scales(levels, dtype)[1], float)
        given = tuple(float(np.max(number)) for number in (epsilons, margin, rule.sensitivity))
        expected = f"such that {np.dtype(dtype)} holds the noise of the last level"
        check(np.isfinite(scales[-1]), "epsilons, margin and sensitivity", given, expected)
        # The epsilon at which ideal noise would be as wide.
        ideal = 4 * float(rule.sensitivity) / scales[-1]
        parts = jnp.asarray(ideal), jnp.asarray(rule.sensitivity), jnp.asarray(gamma)
        least = float(_shortfall(*parts, 1.0, noise))
    # NaN: the rule cannot make the noise of the level.
    with np.errstate(over="ignore", under="ignore"):
        wrong = np.nan_to_num(_tail(np.exp(-float(margin) / scales), noise), nan=np.inf)
    total = np.cumsum(wrong[::-1])[::-1]
    expected = f"at least {least:.3g}, for the noise of the test at the last level"
    hint = "Give a smaller at_least, larger levels, or a utility of smaller sensitivity."
    check(total[-1] <= gamma, "margin", margin, expected, hint)
    return int(np.argmax(total <= gamma))


@explain_fields
class PrivateTest(NamedTuple):
    """A private test that rarely accepts a missed target, made by `private_test`.

    Attributes:
        rule: the rule, whose threshold is the target plus the margin.
        margin: threshold minus target, in units of the utility.
        first: number of the first level to use: earlier levels have too much noise.
        epsilon: cost of the test, in addition to the releases, if it stops at this level. A later
            stop costs the epsilon of its level.
    """

    rule: ReducedAboveThreshold
    margin: float
    first: int
    epsilon: float


@neutral_config()
def private_test(
    at_least: float,
    epsilons: ArrayLike,
    sensitivity: ArrayLike,
    *,
    margin: float | None = None,
    best: float | None = 0.0,
    confidence: float = 0.9,
    noise: Noise = "laplace",
    dtype: Any = None,
) -> PrivateTest:
    """Return the private test that accepts a utility below `at_least` rarely, at any level.

    The probability is at most `1 - confidence`, whatever the releases are (`first_level`).

        >>> levels = np.geomspace(0.1, 10, 50)
        >>> test = nrjax.stopping.accuracy.private_test(-0.5, levels, 0.01)
        >>> test.rule.threshold, test.first, round(test.epsilon, 2)
        (-0.125, 13, 0.34)

    Args:
        at_least: utility that is good enough, the target.
        epsilons: privacy levels of the releases, rising, shape (levels,).
        sensitivity: Delta, the sensitivity of the utility.
        margin: distance of the threshold above the target. A small margin needs a large epsilon,
            a large one leaves few good releases. By default 3/4 of the distance to `best`.
        best: utility of the exact answer, which must be public; None if it is not known.
        confidence: least probability of not accepting a worse utility, in (0, 1).
        noise: "laplace" or "exponential".
        dtype: dtype of the run, by which the rule widens its noise. By default JAX's.

    Raises:
        ValueError: an argument is out of range, or the noise of the last level is too large.
    """
    fits = np.ndim(at_least) == 0 and concrete_or_none(at_least) is not None
    check(fits and np.isfinite(at_least), "at_least", at_least, "one finite number")
    check_number("confidence", confidence, lambda n: (n > 0) & (n < 1), "in (0, 1)")
    check_number("sensitivity", sensitivity)
    if margin is None:
        hint = (
            "Ask for less. If better scores can be reached, state margin=, in units of the score."
        )
        below = best is not None and best > at_least
        known = best if best is None else f"{best:.6g}"
        check(below, "at_least", at_least, f"below {known}, the best score", hint)
        margin = MARGIN * (best - at_least)  # pyright: ignore[reportOptionalOperand]
        what = "such that its distance to best is"
        check_normal("at_least", at_least, np.asarray(margin), what, OTHER_UNIT)
    check_number("margin", margin)
    rule = ReducedAboveThreshold(at_least + margin, sensitivity, noise=noise)
    # A run rounds the threshold, which may then be nearer to the target.
    dtype = dtype or float_dtype()
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.asarray(rule.threshold).astype(dtype))
    held = min(float(margin), rounded - float(at_least))
    first = _first_level(rule, as_table(epsilons), held, 1 - confidence, dtype)
    used = as_table(epsilons)[first:]
    rule.check_held(used, dtype)
    return PrivateTest(rule, margin, first, float(used[0]))


@neutral_config()
def whitehouse_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, share: ArrayLike
) -> Array:
    """Return the bound on the shortfall of Whitehouse 2022, Proposition C.1.

    It is `(4 Delta/eps) (log(2/gamma) - log(share))`, where `share` is the paper's `p_n`. The bound
    is true, and fails with probability at most `gamma/3`. The paper's proof, which bounds threshold
    noise and query noise by half of it each, would need a bound twice as large.
    """
    epsilon, sensitivity, gamma, share = _checked(
        epsilon=epsilon, sensitivity=sensitivity, gamma=gamma, share=share
    )
    return (4 * sensitivity / epsilon) * (jnp.log(2 / gamma) - jnp.log(share))


@neutral_config()
def ligett_shortfall(
    epsilon: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """Return the bound on the shortfall over T steps of Ligett 2017, Theorem A.1.

    It is `8 Delta (log(T) + log(2/gamma))/eps`, where T is `steps`.
    """
    (count,) = _checked(steps=steps)
    return 2 * whitehouse_shortfall(epsilon, sensitivity, gamma, 1 / count)


@neutral_config()
def ligett_epsilon(
    gap: ArrayLike, sensitivity: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """Return the epsilon at which `ligett_shortfall` is `gap`.

    It is `8 Delta (log(T) + log(2/gamma))/gap`, where T is `steps`. For a gap of `alpha/2` it is
    the `eps_0 = 16 Delta log(2T/gamma)/alpha` of Ligett 2017, Algorithm 3.
    """
    _checked(gap=gap)
    return ligett_shortfall(gap, sensitivity, gamma, steps)


@np.errstate(over="ignore", under="ignore")  # numbers beyond the dtype become infinite
def _checked(noise: str = "laplace", **values: ArrayLike) -> list[Array]:
    """Return the arguments cast to one dtype, after checking the range of each."""
    check_choice("noise", noise, ("laplace", "exponential"))
    values = {name: as_table(value) for name, value in values.items()}
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
