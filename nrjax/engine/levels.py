"""Levels of epsilon: defaults, and the schedule and the guarantee made from them."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from nrjax._base.validation import check, check_integer, check_positive, concrete_or_none
from nrjax.guarantees import HockeyStickBoundary, MinimaxBoundary
from nrjax.schedules import Grid
from nrjax.stopping import accuracy
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule

Levels: TypeAlias = tuple[float, float, int] | Schedule
"""Epsilons `(low, high, count)` in equal ratios, or a schedule such as a `Grid`."""

Settled: TypeAlias = tuple[Any, Schedule]
"""A guarantee that holds for a schedule, and the schedule."""

DEFAULT = 0.01, 10.0, 100
"""Default levels.

Over this range the minimax boundary costs 1.146, 1.162 and 1.174 times what its oracle pays at 50,
100 and 200 levels. A stop at the next level costs 7.4 %, 3.6 % and 1.8 % more on average. More than
100 levels gain less than 1 % in all.
"""

_ABOVE_FLOOR = 1.05
"""Least first level by default, as a multiple of the guarantee's smallest epsilon."""


def resolve(levels: Any, guarantee: Guarantee | None, process: NoiseProcess, dtype: Any) -> Levels:
    """Return the levels after checking their type, or the default levels if they are None."""
    if isinstance(levels, Schedule):
        return levels
    hint = "Give levels=nrjax.Grid(times)."
    check(guarantee is not None, "guarantee", None, "given for levels of epsilon", hint)
    if levels is not None:
        ok = isinstance(levels, (tuple, list)) and len(levels) == 3
        check(ok, "levels", levels, "(low, high, count), or a schedule such as nrjax.Grid(times)")
        for number in levels:
            check_positive("each of the levels' low, high and count", number)
        low, high, count = map(concrete_or_none, levels)
        check_integer("count of the levels", levels[2], 1)
        rising = low is None or high is None or low < high or (count == 1 and low == high)
        check(rising, "levels", levels, "(low, high, count) with low < high")
        return tuple(levels)
    return _default(guarantee, process, dtype)


def _default(guarantee: Any, process: NoiseProcess, dtype: Any) -> Levels:
    """Return the default levels, cut to those that guarantee and process reach."""
    if guarantee.fixed_times is not None:
        return Grid.explicit(guarantee.fixed_times)
    if isinstance(guarantee, HockeyStickBoundary):  # other times cost as much as the next of these
        return Grid.explicit(guarantee.times)
    if isinstance(guarantee, MinimaxBoundary):
        return DEFAULT
    low, high, count = DEFAULT
    # At an infinite time a linear boundary has its floor, which it does not reach.
    largest, smallest = process.largest_time(dtype), process.smallest_time(dtype)
    low = np.fmax(low, _ABOVE_FLOOR * np.max(guarantee.epsilon(largest)))
    if smallest > 0:
        high = np.fmin(high, np.max(guarantee.epsilon(smallest)))
    return float(low), float(high), count


def settle(guarantee: Any, levels: Levels) -> Settled:
    """Return a guarantee that holds at the levels, and the levels as a schedule."""
    is_open = isinstance(guarantee, MinimaxBoundary)
    if isinstance(levels, Schedule):
        return guarantee.on(levels) if is_open else guarantee, levels
    if not is_open:
        return guarantee, Grid.geometric(guarantee, *levels)
    settled = guarantee.between(*levels)
    return settled, Grid.explicit(settled.times)


def settle_for_test(
    guarantee: Any, levels: Levels, set_up: Callable[[Any], accuracy.PrivateTest]
) -> tuple[Settled, StoppingRule]:
    """Return `settle` of the levels from the first that a private test uses, and its rule.

    `set_up` returns the test for the epsilons of all levels.
    """
    if not isinstance(levels, Schedule):
        (low, high, count), grid = levels, None
        if not isinstance(guarantee, MinimaxBoundary):
            grid: Any = settle(guarantee, levels)[1]
        if grid is None or concrete_or_none(grid.times) is None:
            test = set_up(np.geomspace(low, high, count))
            return settle(guarantee, (test.epsilon, high, count - test.first)), test.rule
        levels = grid  # a boundary at fixed times may cost less than asked for
    guarantee, schedule = settle(guarantee, levels)
    check(guarantee is not None, "guarantee", None, "given for a private test")
    times = concrete_or_none(schedule.times)
    check(times is not None, "levels", levels, "epsilons or a nrjax.Grid for a private test")
    test = set_up(guarantee.epsilon(times))
    used = schedule if test.first == 0 else Grid.explicit(np.asarray(times)[test.first :])
    return (guarantee, used), test.rule
