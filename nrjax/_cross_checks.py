"""What the parts of an interaction promise each other, checked."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nrjax._format import format_value
from nrjax._numerics import float_dtype
from nrjax._validation import check, check_numbers, concrete_or_none
from nrjax.keys import is_custom
from nrjax.sensitivities import NORMS
from nrjax.stopping.thresholds import ThresholdRule
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule, Utility, overrides

ROUNDING = 32
"""Machine epsilons by which a cost may seem to fall: a guarantee's is right to fewer."""

_LEVELS_PER_DEVIATION = 16  # numbers of the dtype that the noise must span, at least


def check_rule(
    rule: StoppingRule, utility: Utility, guarantee: Any, steps: int | None, dtype: Any
) -> None:
    """What the rule and the utility promise is enough for the schedule and for each other."""
    kind = type(rule).__name__
    if rule.uses_epsilon and guarantee is None:
        raise ValueError(f"guarantee = None: {kind} sets its noise by the guarantee's epsilon")
    for name, part in (("rule", rule), ("utility", utility)):
        most = part.max_steps
        if most is not None and steps is not None and steps > most:
            raise ValueError(
                f"{name} = {type(part).__name__} for {most} steps: must cover the {steps} steps of "
                "the schedule (or give max_steps)"
            )
    if isinstance(rule, ThresholdRule):
        # A utility that states what its exact value moves by is itself rounded, and more than once.
        rule.check_resolved(dtype, 8 if utility.sensitivity is not None else 1)
    if rule.sensitivity is None:
        return
    needed = utility.sensitivity
    if needed is None and "sensitivity" in vars(utility):  # a field, of which nothing is known
        raise ValueError(
            f"utility = {type(utility).__name__}: must state its sensitivity for {kind}, whose "
            "cost rests on it"
        )
    parts = [needed, getattr(getattr(utility, "utilities", None), "sensitivity", None)]
    own = [float(np.max(number)) for number in map(concrete_or_none, parts) if number is not None]
    stated = concrete_or_none(rule.sensitivity)
    if stated is not None and own:
        # In the dtype of the run: one of two equal numbers may have been through float32.
        ok = stated.astype(dtype) >= np.asarray(max(own), dtype)
        right = f"at least {max(own):.6g}, the sensitivity of the utility"
        check(ok, "sensitivity of the rule", float(np.max(stated)), right)


def check_noise(
    value: Any, process: NoiseProcess, guarantee: Guarantee | None, schedule: Schedule, dtype: Any
) -> None:
    """The guarantee is for this noise, and the dtype resolves the noise beside the value."""
    if guarantee is not None:
        name, right = f"delta of {type(guarantee).__name__}", "a number, at least 0 and below 1"
        check_numbers(name, guarantee.delta, lambda n: (n >= 0) & (n < 1), right)
    kind, made = type(process).__name__, process.noise
    for name, part in (("guarantee", guarantee), ("schedule", schedule)):
        covered = None if part is None else part.noise
        unknown = made is None and part is guarantee  # a schedule's filter takes no unnamed noise
        if covered is not None and made != covered and not unknown:
            raise ValueError(
                f"{name} must be for {made or 'other'} noise, which {kind} makes, but holds for "
                f"{covered} noise (got {format_value(part)})."
            )
    if guarantee is not None and guarantee.fixed_times is not None:
        _check_looks(guarantee, concrete_or_none(getattr(schedule, "times", None)), dtype)
    check_integral(process, value, schedule, dtype)
    if schedule.requires_noise_reduction:
        chain = not overrides(process, NoiseProcess, "equivalent_time")
        right = f"noise reduction, whose stop {type(schedule).__name__} pays"
        check(chain, "process", process, right)
    private, last = concrete_or_none(value), concrete_or_none(schedule.last_time)
    if private is None or last is None or not private.size:
        return
    with jax.ensure_compile_time_eval():
        deviation = concrete_or_none(process.deviation(jnp.asarray(last, dtype)))
    largest = np.max(np.abs(private))
    spacing = np.spacing(largest.astype(dtype))
    narrow = deviation is not None and np.any(_LEVELS_PER_DEVIATION * spacing > deviation)
    if narrow and deviation is not None and not process.integral:  # whose sums are exact
        raise ValueError(
            f"value is as large as {largest:.4g}, where {np.dtype(dtype).name} "
            f"numbers are {spacing:.2g} apart: must resolve the noise, whose standard deviation "
            f"falls to {np.min(deviation):.2g}; subtract a public centre, or use float64 "
            "(JAX_ENABLE_X64=1)"
        )


def check_costs(guarantee: Guarantee | None, schedule: Schedule, dtype: Any) -> None:
    """A custom guarantee's costs at the times of a grid are not negative, and do not fall."""
    times = concrete_or_none(getattr(schedule, "times", None))
    if times is None or guarantee is None or not is_custom(guarantee):
        return
    with jax.ensure_compile_time_eval():
        costs = concrete_or_none(jax.vmap(guarantee.epsilon)(jnp.asarray(times, dtype)))
    if costs is None:
        return
    least = np.append(0, costs[:-1] * (1 - ROUNDING * float(jnp.finfo(dtype).eps)))
    wrong = np.flatnonzero(~(costs >= np.maximum(least, 0)))
    if wrong.size:
        at = wrong[0]
        name = f"epsilon of {type(guarantee).__name__} at time {times[at]:.6g}"
        right = "at least 0, and no less than at a larger time"
        check(False, name, costs[at], right if at == 0 else f"{right}, {costs[at - 1]:.6g}")


def _check_looks(guarantee: Guarantee, times: Any, dtype: Any) -> None:
    """A grid has no times but those of the guarantee; of other schedules a run will tell."""
    looks = concrete_or_none(guarantee.fixed_times)
    if times is not None and looks is not None:
        other = ~np.isin(times.astype(dtype), looks.astype(dtype))
        right = f"among the {looks.size} looks of {type(guarantee).__name__}"
        check(~other, "times of the schedule", times[other], right)


def check_integral(process: NoiseProcess, value: Any, schedule: Any, dtype: Any) -> None:
    """A value under integer noise is of integers, and their sums are exact in the dtype.

    `schedule` gives the first time; None: not known.
    """
    number = concrete_or_none(value)
    if not process.integral or number is None:
        return
    check(number == np.round(number), "value", value, f"integers, as {type(process).__name__} is")
    with jax.ensure_compile_time_eval():
        first = None if schedule is None else concrete_or_none(schedule.init()[1])
    first = None if first is None or not np.isfinite(first).all() else first
    if first is not None:
        right = f"at most {process.largest_time(dtype)}, where {type(process).__name__} is exact"
        check(first <= process.largest_time(dtype), "first time", first, right)
    most = 2 ** (jnp.finfo(dtype).nmant + 1)
    # The most that a word of so many bits gives, in units of the time.
    reach = 0 if first is None else float((1 + jnp.finfo(dtype).bits) * np.log(2) * first + 1)
    largest = float(np.max(np.abs(number), initial=0))
    right = f"at most {most}, with noise of up to {reach:.3g}; larger in float64 (JAX_ENABLE_X64=1)"
    check(largest + reach <= most, "value", value, right)


def check_sensitivities(shift: Any, guarantee: Guarantee | None, schedule: Schedule) -> None:
    """A shift is one between neighbours, and what a schedule pays for is no less than they differ.

    So the shift is no longer than the sensitivity that the guarantee or the schedule states, and
    the schedule's is not below the guarantee's.
    """
    stated = {}
    for name, part in (("guarantee", guarantee), ("schedule", schedule)):
        norm = NORMS.get(getattr(part, "noise", None) or "")
        number = concrete_or_none(getattr(part, "sensitivity", None))
        if norm is not None and number is not None:
            stated[name] = norm, number
    for name, (norm, number) in stated.items():
        moved = concrete_or_none(shift)
        if moved is None:
            continue
        length = float(np.linalg.norm(np.ravel(moved.astype(np.float64)), 1 if norm == "l1" else 2))
        right = f"of {norm} norm at most {number.max():.6g}, the sensitivity of the {name}"
        fits = length <= number.max() * (1 + _slack(moved, number))
        check(fits, "shift", shift, f"{right}, not {length:.6g}")
    if len(stated) == 2 and stated["guarantee"][0] == stated["schedule"][0]:
        own, paid = stated["guarantee"][1], stated["schedule"][1]
        right = f"at least {own.max():.6g}, that of the guarantee"
        fits = np.all(own <= paid * (1 + _slack(own, paid)))
        check(fits, "sensitivity of the schedule", schedule.sensitivity, right)


def check_told(rule: StoppingRule, guarantee: Guarantee | None, schedule: Schedule) -> None:
    """A schedule that pays for the answers of a private rule is told of the one that gives them."""
    told = getattr(schedule, "rule", None)
    if told is None:
        return
    pairs: dict[str, Any] = {"rule": (told, rule)}
    if rule.uses_epsilon:  # which its noise goes by, and so what it costs
        pairs["guarantee"] = (getattr(schedule, "guarantee", None), guarantee)
    for name, (paid, used) in pairs.items():
        right = f"the {name} of the interaction, {format_value(used)}, which is to be paid for"
        check(_alike(paid, used), f"{name} of the schedule", paid, right)


def _alike(one: Any, other: Any) -> bool:
    """Whether two parts are of a form, with the same numbers as far as these are known."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(
        *(map(concrete_or_none, jax.tree.leaves(part)) for part in (one, other)), strict=True
    )
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=_slack(a, b), atol=0, equal_nan=True)
        for a, b in known
    )


def _slack(*arrays: np.ndarray) -> float:
    """How far apart equal numbers may be after a cast: 8 machine epsilons of the coarser dtype."""
    held = (float_dtype(np.empty(0, number.dtype)) for number in arrays)
    return 8 * max(float(jnp.finfo(dtype).eps) for dtype in held)
