"""The passes over a case: what is kept of a trial, where it goes, and the program that runs it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax._format import format_value
from nrjax._validation import check
from nrjax.interaction import Interaction
from nrjax.path import run_path
from nrjax.simulation import lanes, montecarlo
from nrjax.simulation.batching import power_of_two
from nrjax.simulation.folding import sketches
from nrjax.simulation.program import Program
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.sketches import Sketch
from nrjax.study.case import FIELDS, Case, Quantity
from nrjax.study.folds import dims_of, fold_of, outcome_sketch
from nrjax.study.layout import Coordinate, Pass, Variable
from nrjax.study.sketched import sketch_pass


class Plan(NamedTuple):
    """One pass over a case: where its results go, and what computes them."""

    layout: Pass
    make: Callable[[], Program]
    meaning: tuple[Any, Any]
    """A function of one trial's key that gives what is kept, and its numbers; for fingerprints."""


_BYTES = 2**26
"""Most bytes of a launch's results that are kept."""

_MOST = 2**20
"""Most trials of a launch."""


def plans(
    case: Case, trials: int, chunk: int | None, keep: str, width: float | None
) -> dict[str, Plan]:
    """The passes over a case, by name.

    Epsilon has bins no wider than `width` up to what trials usually pay; None for the usual ones.

    Raises:
        ValueError: a quantity is not what it should be; or bins would have to be too narrow.
    """
    plan = partial(_plan, case, trials=trials, chunk=chunk, keep=keep, width=width)
    given = {n: q if isinstance(q, Quantity) else Quantity(q) for n, q in case.quantities.items()}
    run, fields = _one_session, ()
    if isinstance(case.trial, Interaction):
        run, fields = _one_outcome, tuple(n for n in FIELDS if keep == "trials" or n != "time")
    found = {"outcome": plan(run, case.trial, fields, given, case.coordinates)}
    for name, curve in case.curves.items():
        quantities = {
            n: replace(q, dims=("level", *q.dims), bins=None if q.bins == "fitting" else q.bins)
            for n, q in curve.quantities.items()
        }
        along = {axis: ("level", values) for axis, values in curve.along.items()}
        found[name] = plan(_one_path, curve.resolved, (), quantities, along)
    return found


def _one_outcome(interaction: Any, key: Array) -> Any:
    start = engine.start(interaction, key)
    if interaction._uses_bounds:  # which decide, so that they count in a fingerprint
        lanes.decide_from_bounds(interaction, start)
    return engine.finish(interaction, engine.step(interaction, start))


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
    """What is kept of one trial, as a function."""

    run: Callable[[Any, Array], Any]
    derived: tuple[tuple[str, Callable[[Any], Array]], ...]

    def __call__(self, trial: Any, key: Array) -> Any:
        found = self.run(trial, key)
        return found, {name: _numbers(name, function(found)) for name, function in self.derived}


def _numbers(name: str, value: Any) -> Array:
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        right = "a number, or an array of numbers, for each trial"
        raise ValueError(
            f"quantity {name} gives {format_value(value)}: must give {right}"
        ) from None


def _plan(
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
    width: float | None,
) -> Plan:
    """A pass that keeps these fields and quantities; all fields, if there are none."""
    derived = tuple((name, one.of) for name, one in quantities.items() if one.of is not None)
    meaning = _Meaning(run, derived)
    key = jax.eval_shape(lambda: jax.random.key(0))
    # A function of its own, or JAX may give shapes from before an edit of what it refers to.
    whole, made = jax.eval_shape(lambda *of: meaning(*of), trial, key)
    names = (*fields, *quantities) or whole._fields
    fields = tuple(name for name in names if name not in dict(derived))
    for name in fields:
        check(name in whole._fields, "quantities", name, f"one of {whole._fields}")
    shapes = {name: made[name] if name in made else getattr(whole, name) for name in names}
    kept = {name: quantities.get(name, Quantity()) for name in names}
    along = {
        name: Coordinate(dim, tuple(map(float, values)))
        for name, (dim, values) in coordinates.items()
    }
    if keep == "trials":
        sketch, variables = None, {}
        known = {} if run is _one_session else FIELDS  # its names mean what the session says
        for name, one in kept.items():
            about = dict(known.get(name, {})) if one.of is None else {}
            about |= {"units": one.units} if one.units else {}
            dims = dims_of(name, shapes[name], one)
            variables[name] = Variable(shapes[name].dtype.name, dims, about)
        layout = Pass(trials, chunk, variables, along)
    else:
        about = {}
        if run is _one_outcome:
            about = {"flag_meanings": FIELDS["status"]["flag_meanings"]}
            sketch = outcome_sketch(case, width, shapes, kept)
        else:
            sketch = Sketch({name: fold_of(name, shapes[name], one) for name, one in kept.items()})
        assert chunk is not None
        layout = sketch_pass(trials, chunk, sketch, along, about)

    def make() -> Program:
        options: Any = {"fields": fields, "batching": case.batching, "derived": derived}
        program = _PROGRAMS[run](trial, min(trials, _launch(case, layout)), **options)
        # Whatever the number of trials, so that more of them need no other program.
        return program if sketch is None else sketches(program, sketch, chunk)

    return Plan(layout, make, (meaning, trial))


def _launch(case: Case, layout: Pass) -> int:
    """Return the most trials of a launch, by their number and by the bytes kept of them."""
    most = case.batching.chunk if case.batching else None
    if most is None:
        most = power_of_two(_BYTES // max(layout.row_bytes, 1), 1, _MOST)
    return most if layout.chunk is None else min(most, layout.chunk)
