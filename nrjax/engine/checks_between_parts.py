"""Checks of the parts of an interaction against each other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nrjax._base.dtypes import float_dtype
from nrjax._base.format import format_value
from nrjax._base.keys import is_custom
from nrjax._base.notions import Notion, notion_of
from nrjax._base.numerics import norm_of
from nrjax._base.sensitivities import NORMS, relation_of, split_relation
from nrjax._base.validation import (
    OTHER_UNIT,
    check,
    check_made_in,
    check_numbers,
    concrete_or_none,
)
from nrjax.types import (
    Guarantee,
    NoiseProcess,
    Schedule,
    StoppingRule,
    Utility,
    last_time_of,
    overrides,
)
from nrjax.utilities import FunctionUtility

COST_TOLERANCE = 32
"""Largest relative fall of the cost from one release to the next, in machine epsilons."""

_LEVELS_PER_DEVIATION = 16
"""Least number of float spacings that the noise's standard deviation must span."""

_APART = 1e-4
"""Least relative distance of looks that are rounded to the dtype of a run."""

USE_FLOAT64 = "Subtract a public centre, or use float64 (JAX_ENABLE_X64=1)."


def check_rule(
    rule: StoppingRule, utility: Utility, guarantee: Any, steps: int | None, dtype: Any
) -> None:
    """Check that rule and utility cover all steps, and compare their sensitivities."""
    kind = type(rule).__name__
    missing = rule.uses_epsilon and guarantee is None
    check(
        not missing, "guarantee", None, f"given: {kind} sets its noise by the guarantee's epsilon"
    )
    for name, part in (("rule", rule), ("utility", utility)):
        covered = part.max_steps is None or steps is None or steps <= part.max_steps
        expected = f"at least {steps}, the steps of the schedule"
        hint = "Or give the interaction a smaller max_steps."
        check(covered, f"steps of the {name}", part.max_steps, expected, hint)
    # A utility with a stated sensitivity is itself rounded, and more than once.
    rule.check_resolved(dtype, 8 if utility.sensitivity is not None else 1)
    if rule.sensitivity is None:
        return
    for part in (utility, utility.utilities):
        if part is not None:
            check_made_in(type(part).__name__, part.made_in, dtype)
    sensitivity = utility.sensitivity
    stated = sensitivity is not None or "sensitivity" not in vars(utility)
    if not stated:
        raise ValueError(
            f"utility must state its sensitivity, on which the cost of {kind} depends "
            f"(got {type(utility).__name__})."
        )
    parts = [sensitivity, None if utility.utilities is None else utility.utilities.sensitivity]
    known = [float(np.max(number)) for number in map(concrete_or_none, parts) if number is not None]
    assumed = concrete_or_none(rule.sensitivity)
    if assumed is not None and known:
        # In the dtype of the run, since one of two equal numbers may have been cast to float32.
        ok = assumed.astype(dtype) >= np.asarray(max(known), dtype)
        expected = f"at least {max(known):.6g}, the sensitivity of the utility"
        check(ok, "sensitivity of the rule", float(np.max(assumed)), expected)


def check_group(rule: StoppingRule, utility: Utility, relation: str | None) -> None:
    """Check that the sensitivity of a privately tested utility is one for groups of rows.

    That of a function is its user's number. Another utility, such as those of `nrjax.counts`, has a
    sensitivity for one row unless it states the relation.
    """
    if rule.sensitivity is None or relation is None or split_relation(relation)[1] == 1:
        return
    known = isinstance(utility, FunctionUtility) or relation_of(utility) == relation
    expected = f"stated for {relation!r} if the rule is private"
    hint = "Use until(score, sensitivity=...) with the sensitivity for the group."
    check(known, "sensitivity of the utility", type(utility).__name__, expected, hint)


def check_monotone(rule: StoppingRule, relation: str | None) -> None:
    """Check that a rule for utilities that move in one direction has a relation that allows it.

    A replaced row, and a group of rows, can raise one utility and lower another. A row that is
    added or removed moves all counts in one direction. Whether it so moves all utilities of the
    interaction is what the user states by `monotone`.
    """
    expected = "'add-remove' if the rule has monotone=True"
    hint = (
        "Leave monotone=True away, or state the relation: nrjax.Sensitivity(..., 'add-remove') "
        "for a private value that changes by an added or removed row."
    )
    fits = not rule.monotone or relation == "add-remove"
    check(fits, "relation of the neighbours", relation, expected, hint)


def check_notion_and_delta(guarantee: Guarantee | None) -> None:
    """Check the notion and delta of a guarantee, which a custom guarantee may set."""
    notion_of(guarantee)  # refuses the name of an unknown notion
    if guarantee is not None:
        name, kind = f"notion of {type(guarantee).__name__}", Notion.DIFFERENTIAL_PRIVACY
        expected = "'pure', 'probabilistic' or 'hockey-stick', since its epsilon is ex post"
        check(guarantee.notion != kind, name, guarantee.notion, expected)
        name, expected = f"delta of {type(guarantee).__name__}", "a number, at least 0 and below 1"
        check_numbers(name, guarantee.delta, lambda n: (n >= 0) & (n < 1), expected)


def check_distributions(
    process: NoiseProcess, guarantee: Guarantee | None, schedule: Schedule
) -> None:
    """Check that guarantee and schedule are for noise of the process's distribution."""
    kind, noise = type(process).__name__, process.noise
    for name, part in (("guarantee", guarantee), ("schedule", schedule)):
        covered = None if part is None else part.noise
        unnamed = noise is None and part is guarantee  # a filter accepts no unnamed noise
        if covered is not None and noise != covered and not unnamed:
            raise ValueError(
                f"{name} must be for {noise or 'other'} noise, which {kind} makes, but holds for "
                f"{covered} noise (got {format_value(part)})."
            )


def check_looks(guarantee: Guarantee | None, schedule: Schedule, dtype: Any) -> None:
    """Check that a dtype holds the guarantee's `fixed_times`, and that all times are among them.

    Schedules without fixed times are not checked here. Their trials fail at any other time.
    """
    looks = None if guarantee is None else concrete_or_none(guarantee.fixed_times)
    if looks is None:
        return
    kind, times = type(guarantee).__name__, concrete_or_none(schedule.times)
    # Rounding changes the distance of closer looks by more than the margins of epsilon cover.
    apart = np.abs(np.diff(looks)) > _APART * looks[1:]
    held = np.all(looks.astype(dtype) == looks) or np.all(apart)
    expected = f"held by {np.dtype(dtype)}, or apart by more than {_APART:g} of their size"
    check(held, f"looks of {kind}", looks, expected, "Or give the value as float64.")
    if times is not None:
        other = ~np.isin(times.astype(dtype), looks.astype(dtype))
        expected = f"among the {looks.size} looks of {kind}"
        check(~other, "times of the schedule", times[other], expected)


def check_noise_reduction(process: NoiseProcess, schedule: Schedule) -> None:
    """Check that the noise is reduced, if the schedule pays for the last release only."""
    if schedule.requires_noise_reduction:
        reducing = not overrides(process, NoiseProcess, "equivalent_time")
        expected = f"a noise-reduction process, for which {type(schedule).__name__} pays"
        check(reducing, "process", process, expected)


def check_exact_times(process: NoiseProcess, schedule: Schedule, dtype: Any) -> None:
    """Check that draws are exact at the first and the last time of a schedule.

    A schedule without fixed times may end earlier, for example because a filter refuses its last
    times. A process that reports its status is then exact until its trial ends.
    """
    last = concrete_or_none(last_time_of(schedule))
    if last is None or (schedule.times is None and overrides(process, NoiseProcess, "status")):
        return
    where = f"where {type(process).__name__} is exact in {np.dtype(dtype)}"
    least, most = process.smallest_time(dtype), process.largest_time(dtype)
    hint = f"End the levels at a smaller epsilon. {OTHER_UNIT}"
    expected = f"at least {least:g}, {where}"
    check(np.min(last) >= least, "last time", float(np.min(last)), expected, hint)
    if schedule.times is not None:
        first, hint = np.max(schedule.times), f"Start the levels at a larger epsilon. {OTHER_UNIT}"
        check(first <= most, "first time", float(first), f"at most {most:g}, {where}", hint)


def check_resolution(value: Any, process: NoiseProcess, schedule: Schedule, dtype: Any) -> None:
    """Check that a dtype resolves the noise at the last time, near the private value."""
    private, last = concrete_or_none(value), concrete_or_none(last_time_of(schedule))
    if private is None or last is None or not private.size:
        return
    with jax.ensure_compile_time_eval():
        deviation = concrete_or_none(process.deviation(jnp.asarray(last, dtype)))
    largest = np.max(np.abs(private))
    with np.errstate(over="ignore", invalid="ignore"):
        spacing = np.spacing(largest.astype(dtype))
    if deviation is None or process.integral:  # sums of integers are exact
        return
    expected = (
        f"small enough for {np.dtype(dtype).name} to resolve the noise, whose standard deviation "
        f"falls to {np.min(deviation):.2g}: numbers near {largest:.4g} are {spacing:.2g} apart"
    )
    coarse = np.any(_LEVELS_PER_DEVIATION * spacing > deviation)
    check(not coarse, "value", value, expected, USE_FLOAT64)


def check_costs(guarantee: Guarantee | None, schedule: Schedule, dtype: Any) -> None:
    """Check that a custom guarantee's costs are never negative and do not fall along a grid."""
    times = concrete_or_none(schedule.times)
    if times is None or guarantee is None or not is_custom(guarantee):
        return
    with jax.ensure_compile_time_eval():
        costs = concrete_or_none(jax.vmap(guarantee.epsilon)(jnp.asarray(times, dtype)))
    if costs is None:
        return
    least = np.append(0, costs[:-1] * (1 - COST_TOLERANCE * float(jnp.finfo(dtype).eps)))
    wrong = np.flatnonzero(~(costs >= np.maximum(least, 0)))
    if wrong.size:
        first = wrong[0]
        name = f"epsilon of {type(guarantee).__name__} at time {times[first]:.6g}"
        expected = "at least 0"
        if first > 0:
            expected += f" and at least {costs[first - 1]:.6g}, that of the larger time before"
        check(False, name, costs[first], expected)


def check_integral(process: NoiseProcess, value: Any, schedule: Any, dtype: Any) -> None:
    """Check that a value under integer noise has integer entries, and that releases are exact.

    `schedule` is None if the first time is not known.
    """
    number = concrete_or_none(value)
    if not process.integral or number is None:
        return
    kind = type(process).__name__
    check(number == np.round(number), "value", value, f"integers, as {kind} is integer-valued")
    with jax.ensure_compile_time_eval():
        first = None if schedule is None else concrete_or_none(schedule.init()[1])
    first = None if first is None or not np.isfinite(first).all() else first
    if first is not None:
        largest_time = process.largest_time(dtype)
        expected = f"at most {largest_time}, where {kind} is exact"
        check(first <= largest_time, "first time", first, expected)
    most, reach = _held_integers(dtype, first)
    largest = float(np.max(np.abs(number), initial=0))
    expected = f"at most {most}, with noise of up to {reach:.3g}"
    check(largest + reach <= most, "value", value, expected, "Use float64 (JAX_ENABLE_X64=1).")


def _held_integers(dtype: Any, first: Any) -> tuple[int, float]:
    """Return the largest integer up to which a dtype is exact, and an upper bound of the noise.

    Noise at the first time is drawn from a random word with as many bits as the dtype.
    """
    reach = 0 if first is None else float((1 + jnp.finfo(dtype).bits) * np.log(2) * first + 1)
    return 2 ** (jnp.finfo(dtype).nmant + 1), reach


def holds_releases(process: NoiseProcess, value: np.ndarray, dtype: Any) -> bool:
    """Return whether releases of integers under integer noise are exact at all its times."""
    most, reach = _held_integers(dtype, process.largest_time(dtype))
    return float(np.max(np.abs(value))) + reach <= most


def check_own_value(process: NoiseProcess, value: Any, dtype: Any) -> None:
    """Check that a process made for a value, such as `counts.KeyNoise`, releases this value."""
    own, number = map(concrete_or_none, (process.private_value, value))
    if own is None or number is None:
        return
    expected = f"the value of its {type(process).__name__}, {format_value(own)}"
    hint = "Make both with nrjax.counts.unknown_keys."
    check(np.array_equal(own.astype(dtype), number.astype(dtype)), "value", value, expected, hint)


def check_sensitivities(shift: Any, guarantee: Guarantee | None, schedule: Schedule) -> None:
    """Check the sensitivities of guarantee and schedule against the shift and each other.

    The shift is a difference between neighbours, so its norm is at most each stated sensitivity.
    The sensitivity of a schedule that pays must be at least the guarantee's.
    """
    stated = {}
    for name, part in (("guarantee", guarantee), ("schedule", schedule)):
        norm = None if part is None else NORMS.get(part.noise or "")
        number = None if part is None else concrete_or_none(part.sensitivity)
        if norm is not None and number is not None:
            stated[name] = norm, number
    numbers = concrete_or_none(shift)
    if numbers is not None:
        for name, (norm, number) in stated.items():
            order = 1 if norm == "l1" else 2
            length = norm_of(numbers, order)
            fits = length <= number.max() * (1 + _slack(numbers, number))
            expected = f"of {norm} norm at most {number.max():.6g}, the sensitivity of the {name}"
            check(fits, "shift", shift, f"{expected}, not {length:.6g}")
    if len(stated) == 2 and stated["guarantee"][0] == stated["schedule"][0]:
        covered, paid = stated["guarantee"][1], stated["schedule"][1]
        expected = f"at least {covered.max():.6g}, that of the guarantee"
        fits = np.all(covered <= paid * (1 + _slack(covered, paid)))
        check(fits, "sensitivity of the schedule", schedule.sensitivity, expected)


def check_paid_rule(rule: StoppingRule, guarantee: Guarantee | None, schedule: Schedule) -> None:
    """Check that the private rule that a schedule pays for is the interaction's rule."""
    if schedule.rule is None:
        return
    pairs: dict[str, Any] = {"rule": (schedule.rule, rule)}
    if rule.uses_epsilon:  # its noise, and so its cost, depends on the guarantee
        pairs["guarantee"] = (schedule.guarantee, guarantee)
    for name, (paid, used) in pairs.items():
        expected = f"the {name} of the interaction, {format_value(used)}"
        check(_alike(paid, used), f"{name} of the schedule", paid, expected)


def _alike(part: Any, other: Any) -> bool:
    """Return whether two parts have equal structure and equal numbers, except traced numbers."""
    if jax.tree.structure(part) != jax.tree.structure(other):
        return False
    leaves = zip(jax.tree.leaves(part), jax.tree.leaves(other), strict=True)
    pairs = [(concrete_or_none(a), concrete_or_none(b)) for a, b in leaves]
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=_slack(a, b), atol=0, equal_nan=True)
        for a, b in pairs
        if a is not None and b is not None
    )


def _slack(*arrays: np.ndarray) -> float:
    """Return the relative tolerance for numbers that were cast: 8 machine epsilons."""
    dtypes = (float_dtype(np.empty(0, number.dtype)) for number in arrays)
    return 8 * max(float(jnp.finfo(dtype).eps) for dtype in dtypes)
