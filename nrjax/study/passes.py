"""The passes over a case: what is kept of each trial, how one trial runs, and the program."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

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
from nrjax.simulation.counting import Specs, Tally
from nrjax.simulation.program import Program
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.tiles import derive
from nrjax.study.case import FIELDS, Case, Curve, Quantity
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


@dataclass(frozen=True)
class OneTrial:
    """The function that runs one trial, and returns all that a pass may keep of it.

    Two of them are equal if they compute the same of a trial, so that passes share its program.

    Attributes:
        run: function of the trial's parameters and a key that returns the trial's result.
        derived: name and function of each derived quantity.
    """

    run: Callable[[Any, Array], Any]
    derived: tuple[tuple[str, Callable[[Any], Array]], ...]

    def __call__(self, trial: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        """Return the result of a trial, and the derived quantities by name."""
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


@dataclass(frozen=True, eq=False)
class CasePass(abc.ABC):
    """A pass over the trials of a case, which stores some arrays.

    A subclass defines how one trial runs, what is kept of it, and the program of many trials.

    Attributes:
        case: the case.
        trials: number of trials.
        chunk: number of trials per file, or None.
        keep: "trials" or "summary", as in `RunOptions`.

    Raises:
        ValueError: a quantity does not exist, is not a number, or cannot be kept as a histogram.
    """

    case: Case
    trials: int
    chunk: int | None
    keep: str

    descriptions: ClassVar[Mapping[str, Mapping[str, Any]]] = FIELDS
    """The stored descriptions of fields of a result, by name."""

    make_program: ClassVar[Callable[..., Program]]
    """The function of the trial, the largest number of trials at a time and options."""

    def __post_init__(self):
        self.layout  # noqa: B018, for its checks

    @staticmethod
    @abc.abstractmethod
    def run(trial: Any, key: Array) -> Any:
        """Run one trial, and return a NamedTuple of its results."""

    @cached_property
    def trial(self) -> Any:
        """The parameters of a trial, a pytree. Its leaves are the data of the fingerprint."""
        return self.case.trial

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a result to keep. All fields, if there are no quantities either."""
        return ()

    @property
    def quantities(self) -> Mapping[str, Quantity]:
        """The quantities to keep, by name."""
        return {
            name: quantity if isinstance(quantity, Quantity) else Quantity(quantity)
            for name, quantity in self.case.quantities.items()
        }

    @property
    def coordinates(self) -> Mapping[str, tuple[str, Sequence[float]]]:
        """The numbers along axes of the arrays: an axis and its numbers, by name."""
        return self.case.coordinates

    @property
    def goal(self) -> float | None:
        """The goal of counted outcomes, NaN without one, or None if trials have no outcomes."""
        return None

    def histograms(self) -> Specs:
        """Return the specifications of the histograms that are kept without the trials."""
        return tuple((name, spec_of(name, self._shapes, self._kept)) for name in self._kept)

    @cached_property
    def one_trial(self) -> OneTrial:
        """The function whose program the fingerprint identifies."""
        derived = ((name, quantity.of) for name, quantity in self.quantities.items())
        return OneTrial(self.run, tuple((name, of) for name, of in derived if of is not None))

    @cached_property
    def layout(self) -> Pass:
        """The description of the stored arrays."""
        along = {
            name: Coordinate(dim, tuple(map(float, values)))
            for name, (dim, values) in self.coordinates.items()
        }
        if self._specs is None:
            return Pass(self.trials, self.chunk, self._variables(), along)
        variables = variables_of(self._specs, self.descriptions)
        return Pass(self.trials, self.chunk, variables, along, axis="chunk")

    def program(self) -> Program:
        """Return the program. If trials are not kept, it returns histograms of them."""
        batching = self.case.batching or Batching()
        launch = batching.launch
        if launch is None:
            times = 1 if batching.on_cpu else _FACTOR_ON_ACCELERATORS
            fitting = times * _LAUNCH_BYTES // max(bytes_of(self._shapes), 1)
            launch = power_of_two(fitting, 1, times * _LAUNCH_TRIALS)
        largest = min(self.trials, launch, self.chunk or launch)
        derived = self.one_trial.derived
        fields = tuple(name for name in self._shapes if name not in dict(derived))
        options: Any = {"fields": fields, "batching": batching, "derived": derived}
        program = self.make_program(self.trial, largest, **options)
        if self._specs is None:
            return program
        return Tally(**vars(program), specs=self._specs, goal=self.goal)

    @cached_property
    def _shapes(self) -> dict[str, Any]:
        """The shape and dtype of each kept field and quantity in one trial, by name."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        # A new function, since JAX may cache shapes from before an edit of code that is called.
        result, derived = jax.eval_shape(lambda *args: self.one_trial(*args), self.trial, key)
        expected = "a NamedTuple of arrays, with at least one field"
        named = len(getattr(result, "_fields", ())) > 0
        check(named, "result of the trial's run", result, expected)
        shapes = {}
        for name in (*self.fields, *self.quantities) or result._fields:
            known = name in derived or name in result._fields
            check(known, "quantities", name, f"one of {result._fields}")
            shapes[name] = derived[name] if name in derived else getattr(result, name)
        for name, shape in shapes.items():
            check(getattr(shape, "size", 0) > 0, f"quantity {name}", shape, _PER_TRIAL)
        return shapes

    @cached_property
    def _kept(self) -> dict[str, Quantity]:
        """The kept fields and quantities, by name."""
        return {name: self.quantities.get(name, Quantity()) for name in self._shapes}

    @cached_property
    def _specs(self) -> Specs | None:
        return None if self.keep == "trials" else self.histograms()

    def _variables(self) -> dict[str, Variable]:
        """Return the descriptions of the arrays of kept trials, by name."""
        variables = {}
        for name, quantity in self._kept.items():
            facts = dict(self.descriptions.get(name, {})) if quantity.of is None else {}
            facts |= {"units": quantity.units} if quantity.units else {}
            shape = self._shapes[name]
            dims = dims_of(name, shape, quantity)
            variables[name] = Variable(shape.dtype.name, dims, facts)
        return variables


class OutcomePass(CasePass):
    """The pass that runs the trials of an interaction until they stop."""

    make_program = staticmethod(montecarlo.outcomes)

    @staticmethod
    def run(trial: Interaction, key: Array) -> Any:
        """Take one step, since its program is that of every step."""
        start = steps.start(trial, key)
        if trial.bounds_decide:  # bounds decide, so the fingerprint must include them
            lanes.decide_from_bounds(trial, start)
        return steps.finish(trial, steps.step(trial, start))

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `Outcome` that every study keeps."""
        return tuple(name for name in FIELDS if self.keep == "trials" or name != "time")

    @property
    def goal(self) -> float:
        """The goal of the case, or NaN."""
        return np.nan if self.case.goal is None else self.case.goal

    def histograms(self) -> Specs:
        """Return the specifications of the histograms of outcomes."""
        return outcome_specs(self.case, self._shapes, self._kept)


@dataclass(frozen=True, eq=False)
class CurvePass(CasePass):
    """The pass that evaluates every level of a curve in each trial.

    Attributes:
        curve: the curve.
    """

    curve: Curve

    make_program = staticmethod(montecarlo.paths)

    @staticmethod
    def run(trial: Interaction | Resolved, key: Array) -> Any:
        """Run every level of one trial."""
        if isinstance(trial, Resolved):
            return trial.path(key, int(trial.interaction.schedule.max_steps))
        return run_path(trial, key, int(trial.schedule.max_steps))

    @cached_property
    def trial(self) -> Any:
        """The interaction of the curve, with its resolution."""
        return self.curve.resolved

    @property
    def quantities(self) -> Mapping[str, Quantity]:
        """The quantities of the curve, each with an axis of levels before its own axes."""
        return {
            name: replace(q, dims=("level", *q.dims), bins=None if q.bins == "fitting" else q.bins)
            for name, q in self.curve.quantities.items()
        }

    @property
    def coordinates(self) -> Mapping[str, tuple[str, Sequence[float]]]:
        """The numbers along the levels, by name."""
        return {axis: ("level", values) for axis, values in self.curve.along.items()}


class TrialPass(CasePass):
    """The pass that runs custom trials, whose results may have the names of an `Outcome`."""

    descriptions: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    make_program = staticmethod(montecarlo.custom_trials)

    @staticmethod
    def run(trial: Any, key: Array) -> Any:
        """Run one custom trial."""
        return trial.run(key)


def passes_of(case: Case, trials: int, chunk: int | None, keep: str) -> dict[str, CasePass]:
    """Return the passes over a case, by name.

    Raises:
        ValueError: a quantity does not exist, is not a number, or cannot be kept as a histogram.
    """
    main = OutcomePass if isinstance(case.trial, Interaction) else TrialPass
    passes: dict[str, CasePass] = {"outcome": main(case, trials, chunk, keep)}
    for name, curve in case.curves.items():
        passes[name] = CurvePass(case, trials, chunk, keep, curve)
    return passes
