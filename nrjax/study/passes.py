"""The passes over a case: the quantities to keep, and the program that runs the trials."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.validation import check
from nrjax.engine import steps
from nrjax.engine.interaction import Interaction
from nrjax.engine.path import run_path
from nrjax.simulation import lanes, montecarlo
from nrjax.simulation.batching import Batching, bytes_of, power_of_two
from nrjax.simulation.counting import Tally
from nrjax.simulation.program import Program
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.tiles import derive
from nrjax.study.case import FIELDS, Case, Quantity
from nrjax.study.histograms import dims_of, outcome_specs, spec_of, variables_of
from nrjax.study.schema import Coordinate, Pass, Variable

_LAUNCH_BYTES = 2**26
"""The largest number of bytes of results per launch of a program on a CPU."""

_LAUNCH_TRIALS = 2**20
"""The largest number of trials per launch of a program on a CPU."""

_FACTOR_ON_ACCELERATORS = 8
"""How many times as much an accelerator runs per launch."""

_PER_TRIAL = "a number, or an array of at least one number, per trial"
"""The form that a quantity must have."""


class PassSpec(NamedTuple):
    """A pass over a case: the arrays that it stores, and the program that computes them.

    Attributes:
        layout: description of the stored arrays.
        make: function that returns the program. If trials are not kept, the program returns
            histograms of them.
        meaning: a function and a trial's parameters, which determine the fingerprint. The function
            maps the parameters and a key to all that is kept of the trial.
    """

    layout: Pass
    make: Callable[[], Program]
    meaning: tuple[Any, Any]


def pass_specs(case: Case, trials: int, chunk: int | None, keep: str) -> dict[str, PassSpec]:
    """Return the passes over a case, by name.

    Raises:
        ValueError: a quantity does not exist, is not a number, or cannot be kept as a histogram.
    """
    make = partial(_pass_spec, case, trials=trials, chunk=chunk, keep=keep)
    quantities = {
        name: quantity if isinstance(quantity, Quantity) else Quantity(quantity)
        for name, quantity in case.quantities.items()
    }
    run, fields = _one_session, ()
    if isinstance(case.trial, Interaction):
        run = _one_outcome
        fields = tuple(name for name in FIELDS if keep == "trials" or name != "time")
    specs = {"outcome": make(run, case.trial, fields, quantities, case.coordinates)}
    for name, curve in case.curves.items():
        quantities = {
            n: replace(q, dims=("level", *q.dims), bins=None if q.bins == "fitting" else q.bins)
            for n, q in curve.quantities.items()
        }
        along = {axis: ("level", values) for axis, values in curve.along.items()}
        specs[name] = make(_one_path, curve.resolved, (), quantities, along)
    return specs


def _one_outcome(interaction: Any, key: Array) -> Any:
    start = steps.start(interaction, key)
    if interaction.bounds_decide:  # bounds decide, so the fingerprint must include them
        lanes.decide_from_bounds(interaction, start)
    return steps.finish(interaction, steps.step(interaction, start))


def _one_path(trial: Any, key: Array) -> Any:
    if isinstance(trial, Resolved):
        return trial.path(key, int(trial.interaction.schedule.max_steps))
    return run_path(trial, key, int(trial.schedule.max_steps))


def _one_session(session: Any, key: Array) -> Any:
    return session.run(key)


_PROGRAMS = {
    _one_outcome: montecarlo.outcomes,
    _one_path: montecarlo.paths,
    _one_session: montecarlo.sessions,
}


@dataclass(frozen=True)
class _Meaning:
    """A function that runs one trial and returns its result and the derived quantities."""

    run: Callable[[Any, Array], Any]
    derived: tuple[tuple[str, Callable[[Any], Array]], ...]

    def __call__(self, trial: Any, key: Array) -> Any:
        result = self.run(trial, key)
        derived = ((name, derive(function, result, trial)) for name, function in self.derived)
        return result, {name: _numbers(name, value) for name, value in derived}


def _numbers(name: str, value: Any) -> Array:
    array = None
    with contextlib.suppress(TypeError, ValueError):
        array = jnp.asarray(value)
    check(array is not None, f"quantity {name}", value, _PER_TRIAL)
    assert array is not None
    return array


def _pass_spec(
    case: Case,
    run: Callable[[Any, Array], Any],
    trial: Any,
    fields: tuple[str, ...],
    quantities: Mapping[str, Quantity],
    coordinates: Mapping[str, tuple[str, Sequence[float]]],
    *,
    trials: int,
    chunk: int | None,
    keep: str,
) -> PassSpec:
    """Return a pass that keeps `fields` and `quantities`, or all fields if both are empty."""
    derived = tuple((name, q.of) for name, q in quantities.items() if q.of is not None)
    meaning = _Meaning(run, derived)
    key = jax.eval_shape(lambda: jax.random.key(0))
    # A new function, since JAX may cache shapes from before an edit of code that is called.
    result, made = jax.eval_shape(lambda *args: meaning(*args), trial, key)
    expected = "a NamedTuple of arrays, with at least one field"
    named = len(getattr(result, "_fields", ())) > 0
    check(named, "result of the trial's run", result, expected)
    names = (*fields, *quantities) or result._fields
    fields = tuple(name for name in names if name not in dict(derived))
    for name in fields:
        check(name in result._fields, "quantities", name, f"one of {result._fields}")
    shapes = {name: made[name] if name in made else getattr(result, name) for name in names}
    for name, shape in shapes.items():
        check(getattr(shape, "size", 0) > 0, f"quantity {name}", shape, _PER_TRIAL)
    kept = {name: quantities.get(name, Quantity()) for name in names}
    along = {
        name: Coordinate(dim, tuple(map(float, values)))
        for name, (dim, values) in coordinates.items()
    }
    about = {} if run is _one_session else FIELDS  # a custom trial has its own names
    specs = goal = None
    if keep == "trials":
        variables = {}
        for name, quantity in kept.items():
            facts = dict(about.get(name, {})) if quantity.of is None else {}
            facts |= {"units": quantity.units} if quantity.units else {}
            dims = dims_of(name, shapes[name], quantity)
            variables[name] = Variable(shapes[name].dtype.name, dims, facts)
        layout = Pass(trials, chunk, variables, along)
    else:
        if run is _one_outcome:
            goal = np.nan if case.goal is None else case.goal
            specs = outcome_specs(case, shapes, kept)
        else:
            specs = tuple((name, spec_of(name, shapes, kept)) for name in kept)
        layout = Pass(trials, chunk, variables_of(specs, about), along, axis="chunk")

    def make() -> Program:
        batching = case.batching or Batching()
        launch = batching.chunk
        if launch is None:
            times = 1 if batching.on_cpu else _FACTOR_ON_ACCELERATORS
            fitting = times * _LAUNCH_BYTES // max(bytes_of(shapes), 1)
            launch = power_of_two(fitting, 1, times * _LAUNCH_TRIALS)
        largest = min(trials, launch, chunk or launch)
        options: Any = {"fields": fields, "batching": batching, "derived": derived}
        program = _PROGRAMS[run](trial, largest, **options)
        return program if specs is None else Tally(**vars(program), specs=specs, goal=goal)

    return PassSpec(layout, make, (meaning, trial))
