"""Run many trials, or the same trials at many points, in launches over several devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from nrjax._base.modes import neutral_config
from nrjax._base.outcome import Outcome
from nrjax._base.validation import check, check_integer
from nrjax.engine.interaction import MADE_BY, Interaction
from nrjax.engine.path import Path
from nrjax.simulation import blocks, lanes, resolved, tiles
from nrjax.simulation.batching import Batching, check_batching, first_member, power_of_two
from nrjax.simulation.failures import warn_about_trials
from nrjax.simulation.families import Family, Trials, as_family
from nrjax.simulation.program import Program, trials_per_device
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.tiles import Derived, Options

_MAX_ROWS = 2**30
"""Largest number of results at a time, since lanes number trials by int32."""

_PROGRESS_PARTS = 50
"""Least number of launches if progress is shown."""

_CUSTOM = "Run a custom trial, such as a selection, by nrjax.Study or by jax.vmap(trial.run)(keys)."


def _program(
    trial: Any,
    work: Callable[..., Any],
    launch_size: int,
    batching: Batching,
    options: Options,
    names: Sequence[str] | None = None,
) -> Program:
    """Check the options, whose fields must be among `names` if given, and return the program."""
    launch_size = check_integer("launch_size", launch_size, 1)
    fields, derived = options.fields, tuple((name, function) for name, function in options.derived)
    if names is not None:
        check(set(fields or ()) <= set(names), "fields", sorted(fields or ()), f"among {names}")
    taken = names or fields or ()
    new = [name for name, _ in derived]
    fresh = len(set(new)) == len(new) and not set(new) & set(taken)
    check(fresh, "derived", new, f"distinct names, none of them among {tuple(taken)}")
    for name, function in derived:
        check(callable(function), f"derived {name!r}", function, "a function of a trial's results")
    devices = batching.resolve_devices()
    # A power of two, rounded up to whole tiles, so that similar sizes share a program.
    most, tile = trials_per_device(launch_size, len(devices)), options.tile
    capacity = -(-(2 ** (most - 1).bit_length()) // tile) * tile
    points = math.prod(as_family(trial).axes) if work in (blocks.run, lanes.run) else 1
    expected = f"at most {_MAX_ROWS} results on a device: launch_size, rounded up, times points"
    check(capacity * points <= _MAX_ROWS, "launch_size", launch_size, expected)
    fields = None if fields is None else tuple(fields)
    options = options._replace(fields=fields, derived=derived, capacity=capacity)
    return Program(trial, work, launch_size, devices, options)


def outcomes(
    trial: Trials,
    launch_size: int,
    fields: Sequence[str] = Outcome._fields,
    batching: Batching | None = None,
    derived: Derived = (),
) -> Program:
    """Return the program that runs trials and returns a dict of fields of `Outcome`.

    Args:
        trial: an `Interaction`, or a `nrjax.simulation.families.Family`, whose results have points
            as their second axis.
        launch_size: largest number of trials at a time.
        fields: names of the fields that are kept. Releases and hypotheses may be large: leave them
            out if you do not need them.
        batching: tile, lanes and devices.
        derived: pairs `(name, function)` for further results. `function(outcome)` takes the
            `Outcome` of one trial and returns an array. It runs on the device when the trial ends.
            Define functions at module level, since each new function is compiled again.

    Raises:
        ValueError: a field is unknown, or a derived name is given twice or is that of a field.
    """
    batching = check_batching(batching)
    tile, width = batching.resolve(trial)
    options = Options(tile, fields, derived, width, batching.resolve_inner_steps(trial))
    _, first = first_member(trial)
    if first.bounds_decide and (first.schedule.max_steps > 1 or not options.exact):
        work = lanes.run
    else:
        options = options._replace(lanes=tile, accelerated=not batching.on_cpu)
        work = blocks.run
    return _program(trial, work, launch_size, batching, options, Outcome._fields)


def paths(
    trial: Interaction | Resolved,
    launch_size: int,
    fields: Sequence[str] = ("time", "utility", "epsilon"),
    batching: Batching | None = None,
    derived: Derived = (),
) -> Program:
    """Return the program that runs whole paths, as `nrjax.scan_path` does for one trial.

    Arguments are as for `outcomes`, with the fields of `nrjax.Path`. Results have shape
    (trials, steps, ...). For a `Resolved` interaction a utility is evaluated only if its bounds are
    too far apart.
    """
    batching = check_batching(batching)
    if isinstance(trial, Resolved):
        length = int(trial.interaction.steps)
        tile, width = batching.resolve(trial.interaction, length, bounded=True)
        width = tile * power_of_two(width // tile, 1, width)
        options, work = Options(tile, fields, derived, width, length=length), resolved.run
    else:
        length = int(trial.steps)
        tile, _ = batching.resolve(trial, length)
        options, work = Options(tile, fields, derived, length=length), tiles.run
    return _program(trial, work, launch_size, batching, options, Path._fields)


def custom_trials(
    trial: tiles.CustomTrial,
    launch_size: int,
    batching: Batching | None = None,
    fields: Sequence[str] | None = None,
    derived: Derived = (),
) -> Program:
    """Return the program of a custom trial: trial i is `trial.run(nrjax.trial_key(key, i))`.

    Use it for a trial that is not a single interaction, such as many mechanisms under one budget
    (`nrjax.counts.CountRelease`). Results are named by the NamedTuple that `run` returns. Arguments
    are as for `outcomes`, except that `fields` None keeps all names. Only `batching.tile` (by
    default 256 on a CPU) and `batching.devices` have an effect: a tile runs until its last trial
    ends.
    """
    batching = check_batching(batching)
    options = Options(batching.resolve_custom_trials(trial), fields, derived)
    return _program(trial, tiles.run, launch_size, batching, options)


@neutral_config()
def simulate(
    key: Array,
    interaction: Interaction,
    *,
    trials: int,
    first_trial: int = 0,
    batching: Batching | None = None,
    progress: bool = False,
) -> Outcome:
    """Run many independent trials of a noise-reduction interaction.

    Trial i depends only on the key and on its number i, bit for bit, and not on the number of
    trials, launches, lanes or devices (on one backend, type of CPU and version of jaxlib). It draws
    the same random bits as `run_until(nrjax.trial_key(key, i), interaction)`. Results of the two
    functions can differ in their last bits, since the programs differ.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> interaction = nrjax.laplace(120.0, sensitivity=1.0).until(score, at_least=-2.0)
        >>> outcome = nrjax.simulate(jax.random.key(0), interaction, trials=1000)
        >>> low, median, high = outcome.quantile([0.05, 0.5, 0.95])
        >>> bool(0.01 < low < median < high < 10)
        True

    Args:
        key: key of the study. Independent calls need different keys, for example from
            `jax.random.split`, or ranges of trials that do not overlap (`first_trial`).
        interaction: configuration of a trial.
        trials: number of trials; `first_trial + trials` is at most 2^32.
        first_trial: number of the first trial.
        batching: tile, lanes, launch and devices.
        progress: whether to show the progress, as a bar on a terminal, else as a line every ten
            seconds; needs the extra `studies`.

    Returns:
        An `Outcome` of NumPy arrays with a leading axis of trials. If a trial did not stop, its
        `status` is the reason, and its `epsilon` is the cost of the releases that it made.

    Raises:
        ValueError: an argument is out of range.

    Warns:
        FailedTrialsWarning: trials failed; the warning counts them by status.
        NoStopWarning: none of at least 10 trials stopped, and some did not fail. A threshold of
            infinity, which no release can reach, gives no warning.
        FirstLevelWarning: more than 5 % of at least 100 trials stopped at the first of several
            levels, under a rule that is not a private test (which may need that level).
    """
    ok = isinstance(interaction, Interaction)
    hint = _CUSTOM if callable(getattr(interaction, "run", None)) else MADE_BY
    check(ok, "interaction", interaction, "a nrjax.Interaction", hint)
    outcome = Outcome(**run_all(key, interaction, trials, first_trial, batching, progress))
    warn_about_trials(outcome, interaction)
    return outcome


def run_all(
    key: Array,
    trial: Trials,
    trials: int,
    first_trial: int,
    batching: Batching | None,
    progress: bool,
) -> dict[str, Any]:
    """Run all trials and return all fields of their outcomes."""
    batching = check_batching(batching)
    launch_size = min(batching.resolve_launch(trial), check_integer("trials", trials, 1))
    check(isinstance(progress, bool), "progress", progress, "True or False")
    if not progress:
        return outcomes(trial, launch_size, batching=batching).run_all(key, trials, first_trial)
    from nrjax._base import progress as display  # needs the extra

    program = outcomes(trial, min(launch_size, -(-trials // _PROGRESS_PARTS)), batching=batching)
    with display.progress() as bar:
        bar.begin("simulate", "", trials, 0)
        program.compile(key)
        bar.compiled()
        return program.run_all(key, trials, first_trial, bar)


@neutral_config()
def sweep(
    key: Array,
    interactions: Iterable[Interaction],
    *,
    trials: int,
    first_trial: int = 0,
    batching: Batching | None = None,
    progress: bool = False,
) -> Outcome:
    """Run the same trials of many interactions that differ only in numbers.

    Use it in place of several calls of `nrjax.simulate`: one program runs all points. A later sweep
    of as many points, with other numbers, does not compile again. Trial i has the same noise at
    every point (common random numbers) as trial i of `simulate`. Results of the two functions can
    differ in their last bits, since the programs differ.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> mechanism = nrjax.laplace(120.0, sensitivity=1.0)
        >>> points = [mechanism.until(score, at_least=target) for target in (-0.5, -1.0, -2.0)]
        >>> outcome = nrjax.sweep(jax.random.key(0), points, trials=1000)
        >>> outcome.stopping_epsilon.shape
        (3, 1000)

    Args:
        key: key of the study.
        interactions: one per point, alike in class, shape and dtype. Data that are equal at all
            points are kept once; an iterator is consumed one interaction at a time.
        trials: number of trials per point.
        first_trial: number of the first trial.
        batching: tile, lanes, launch and devices; the launch counts trials per point.
        progress: whether to show the progress; needs the extra `studies`.

    Returns:
        An `Outcome` of NumPy arrays with leading axes (points, trials).

    Raises:
        ValueError: there are no interactions, one differs from the first in structure, or an
            argument is out of range.

    Warns:
        FailedTrialsWarning, NoStopWarning, FirstLevelWarning: as for `nrjax.simulate`, at one or
            more points, which the warning names by their positions.
    """
    family = Family.from_interactions(interactions)
    fields = run_all(key, family, trials, first_trial, batching, progress)
    outcome = Outcome(**jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), fields))
    warn_about_trials(outcome, family)
    return outcome
