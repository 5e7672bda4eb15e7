"""Many trials, in chunks of bounded memory, sharded over devices: `simulate`, and programs."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array

from nrjax._validation import check, check_integer
from nrjax.engine import Path
from nrjax.interaction import Interaction
from nrjax.simulation import lanes, once, resolved, tiles
from nrjax.simulation.batching import Batching, check_batching, power_of_two
from nrjax.simulation.lanes import Trials
from nrjax.simulation.program import Program, share
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.tiles import Derived, Options
from nrjax.types import Outcome

_ROWS = 2**30
"""Most results at a time: lanes number them, and the next ones to come, by int32."""

_PARTS = 50
"""In how many parts trials are run where progress is shown."""

_SESSIONS = 256
"""Sessions that run together, unless asked otherwise."""

_EARLY, _FEW = 0.05, 100
"""Warn if more than this fraction of at least this many trials stops at the first level."""


class FirstLevelWarning(UserWarning):
    """Many trials stopped at the first level, and might have stopped for a smaller epsilon."""


def _program(
    trial: Any,
    work: Callable[..., Any],
    chunk: int,
    batching: Batching,
    options: Options,
    known: Sequence[str] | None = None,
) -> Program:
    """The program for these results, whose fields are among those `known`, if they are."""
    chunk = check_integer("chunk", chunk, 1)
    fields, derived = options.fields, tuple((name, function) for name, function in options.derived)
    if known is not None:
        check(set(fields or ()) <= set(known), "fields", sorted(fields or ()), f"among {known}")
    known = known or fields or ()
    names = [name for name, _ in derived]
    fresh = len(set(names)) == len(names) and not set(names) & set(known)
    check(fresh, "derived", names, f"names of their own, none of them among {tuple(known)}")
    for name, function in derived:
        check(callable(function), f"derived {name!r}", function, "a function of a trial's results")
    devices = batching.resolve_devices()
    # Rounded up to whole tiles and powers of two, so that nearby sizes share a program.
    most, tile = share(chunk, len(devices)), options.tile
    capacity = -(-(2 ** (most - 1).bit_length()) // tile) * tile
    right = f"at most {_ROWS} results on a device: chunk, rounded up, times points"
    check(capacity * math.prod(getattr(trial, "axes", ())) <= _ROWS, "chunk", chunk, right)
    fields = None if fields is None else tuple(fields)
    options = options._replace(fields=fields, derived=derived, capacity=capacity)
    return Program(trial, work, chunk, devices, options)


def outcomes(
    trial: Trials,
    chunk: int,
    fields: Sequence[str] = Outcome._fields,
    batching: Batching | None = None,
    derived: Derived = (),
) -> Program:
    """The program whose results are a dict of arrays by the names in `fields`, of `Outcome`'s.

    Args:
        trial: an `Interaction`; or a `nrjax.simulation.sweeps.Family`, whose results have a second
            axis, of points.
        chunk: trials at a time.
        fields: what is kept of an `Outcome`. Releases may be large: leave out what is not wanted.
        batching: lanes, tiles and devices.
        derived: pairs `(name, function)` for more results in the same dict: `function(outcome)`,
            an array, of one trial's `Outcome`, taken on the device when the trial ends. Define
            functions once, at module level: each new one is compiled anew.

    Raises:
        ValueError: a field is unknown, or a derived name is given twice or is a field's.
    """
    batching = check_batching(batching)
    tile, width = batching.resolve(trial)
    options, work = Options(tile, fields, derived, width), once.run
    if not once.suits(trial, options):
        options, work = options._replace(inner_steps=batching.resolve_inner_steps()), lanes.run
    return _program(trial, work, chunk, batching, options, Outcome._fields)


def paths(
    trial: Interaction | Resolved,
    chunk: int,
    fields: Sequence[str] = ("time", "utility", "epsilon"),
    batching: Batching | None = None,
    derived: Derived = (),
) -> Program:
    """The program that runs whole paths, stopped or not: `nrjax.scan_path` of each trial.

    As `outcomes`, of `nrjax.Path`: its arrays have shape (trials, steps, ...). Of a `Resolved` one
    only the utilities are evaluated whose bounds are too far apart.
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
    return _program(trial, work, chunk, batching, options, Path._fields)


def sessions(
    trial: tiles.Session,
    chunk: int,
    batching: Batching | None = None,
    fields: Sequence[str] | None = None,
    derived: Derived = (),
) -> Program:
    """The program that runs a trial as a whole: trial i is `trial.run(nrjax.trial_key(key, i))`.

    For what is no single interaction, such as a session of many mechanisms under one budget
    (`nrjax.counts.CountRelease`). Results are named by the NamedTuple that `run` returns.

    As `outcomes`, but that `fields` None keeps all names, and of `batching` only tile (None: 256)
    and devices count: a tile of trials goes on until its last one has ended.
    """
    batching = check_batching(batching)
    options = Options(batching.tile or _SESSIONS, fields, derived)
    return _program(trial, tiles.run, chunk, batching, options)


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

    Trial i draws what `run_until(nrjax.trial_key(key, i), interaction)` does; the two are compiled
    apart and may differ in the last bits. It depends on the key and its number alone, bit for bit,
    not on how many trials, chunks, lanes or devices there are (one backend, CPU type and jaxlib).

    Args:
        key: the study's key; calls that are to be independent need keys of their own, as from
            `jax.random.split`, or trials of other numbers.
        interaction: what is run.
        trials: how many trials; `first_trial + trials` is at most 2^32.
        first_trial: number of the first trial.
        batching: lanes, tiles, chunks and devices.
        progress: whether to show it, as a bar on a terminal, else as a line every ten seconds;
            needs the extra `studies`.

    Returns:
        An `Outcome` of NumPy arrays with a leading axis of trials. A trial that did not stop has
        its `status`; its `epsilon` is what was paid for the releases it saw.

    Raises:
        ValueError: an argument is out of range.

    Warns:
        FirstLevelWarning: more than 5 % of at least 100 trials stopped at the first of several
            levels.
    """
    check(isinstance(interaction, Interaction), "interaction", interaction, "a nrjax.Interaction")
    outcome = Outcome(**run_all(key, interaction, trials, first_trial, batching, progress))
    several = min(interaction.schedule.max_steps, int(interaction.steps)) > 1
    early = float(np.mean(np.asarray(outcome.stopped) & (outcome.step == 0)))
    if several and trials >= _FEW and early > _EARLY:
        warnings.warn(
            f"{early:.0%} of {trials:,} trials stopped at the first level, and might have stopped "
            "for a smaller epsilon: start the schedule at a larger time (Grid.geometric with a "
            "smaller `low`, and a boundary that is tight at a smaller epsilon). A private test may "
            "need its first level: see nrjax.stopping.accuracy",
            FirstLevelWarning,
            stacklevel=2,
        )
    return outcome


def run_all(
    key: Array,
    trial: Trials,
    trials: int,
    first_trial: int,
    batching: Batching | None,
    progress: bool,
) -> dict[str, Any]:
    """All fields of the outcomes, with progress if that is wanted."""
    batching = check_batching(batching)
    chunk = min(batching.resolve_chunk(trial), check_integer("trials", trials, 1))
    if not progress:
        return outcomes(trial, chunk, batching=batching).run_all(key, trials, first_trial)
    from nrjax import progress as shown  # needs the extra

    program = outcomes(trial, min(chunk, -(-trials // _PARTS)), batching=batching)
    with shown.progress() as bar:
        bar.begin("simulate", "", trials, 0)
        program.compile(key)
        bar.compiled()
        return program.run_all(key, trials, first_trial, bar)
