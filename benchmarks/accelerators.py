"""Measure six loops on one kind of device: fraction of the generator's limit, and launches.

    python -m benchmarks --platform gpu [NAME ...] [--inner-steps 4 8 16 32] [--lanes 4096 131072]

The loops are raw stepping, scalar trials whose outcomes stay on the device, the same trials
summarised (`folding`), count trials of `rogers2023`, and logistic and ridge regression of
`whitehouse2022` on flights. The limit is the rate of a kernel that computes hashes only, measured
in the same run, for the number of hashes that the trials need. The integer rate of the data sheet
is printed next to it for known devices (`hashes.STATED`). Kernels, and decisions that the host
waits for, are counted per iteration in the compiled program, with the longer side of each branch.
Times are medians without compilation.

A line below says how far the scalar loop is from the limit. On a GPU it is compared with one Pallas
kernel in place of the loop (`benchmarks.one_kernel`), which launches nothing per step.
"""

import dataclasses
import functools
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from benchmarks import billion_trials, hashes, one_kernel, papers, roofline, stepping
from benchmarks.billion_trials import KEY
from benchmarks.kernels import Compiled, Turn
from nrjax.counts import release
from nrjax.papers import rogers2023, whitehouse2022
from nrjax.processes import scan_noise
from nrjax.processes.paths import BLOCK
from nrjax.simulation import montecarlo
from nrjax.simulation.moments import mean_and_variance
from nrjax.simulation.program import Program, _on_devices

_INSTALL = {"gpu": "jax[cuda13] or the build for its maker", "tpu": "jax[tpu]", "cpu": "jax"}
_SAMPLE = 8
"""Number of trials whose hashes are counted."""

HEADINGS = (
    *("loop", "lanes", "seconds", "steps/s", "hashes/step", "of limit"),
    *("steps/turn", "kernels/step", "kernels/turn", "decisions/turn"),
)


@dataclasses.dataclass(frozen=True)
class Loop:
    """One of the loops, for a number of trials.

    Attributes:
        trials: number of trials.
        inner_steps: number of steps per iteration.
        lowered: function that lowers the program, whose launches are counted.
        run: function that runs all trials and returns their total number of steps.
        one: function of a trial's key that returns its steps and its results.
        lanes: number of lanes, if they are refilled.
        unroll: number of steps that the inner loop writes out, one after another.
    """

    trials: int
    inner_steps: int
    lowered: Callable[[], Any]
    run: Callable[[], float]
    one: Callable[[Any], Any]
    lanes: int | None = None
    unroll: int = 1


def _stepping(trials: int) -> Loop:
    """Return the loop of `benchmarks.stepping` for Brownian noise."""
    process, times = nrjax.Brownian(()), np.geomspace(100.0, 1.0, 1000)
    tile = 5000 if jax.default_backend() == "cpu" else 2**17
    run = stepping.maxima(process, times, trials, min(tile, -(-trials // jax.device_count())))

    def one(key: Any) -> Any:
        def largest(carry: Any, state: Any) -> Any:
            return jnp.maximum(carry, process.value(state)), None

        return len(times), scan_noise(key, process, times, largest, -jnp.inf)[0]

    def every() -> float:
        jax.block_until_ready(run(KEY))
        return trials * len(times)

    return Loop(trials, BLOCK, lambda: run.lower(KEY), every, one)


def _interaction(program: Program, trials: int, run: Callable[[], float] | None = None) -> Loop:
    """Return the loop of an interaction, whose lanes are refilled."""
    options, trial = program.options, program.trial

    def one(key: Any) -> Any:
        outcome = nrjax.run_until(key, trial)
        return outcome.step + 1, outcome

    def every() -> float:
        return float(np.sum(program.run_all(KEY, trials)["step"] + 1.0))

    steps, lanes = options.inner_steps, options.lanes
    return Loop(trials, steps, _lowered(program), run or every, one, lanes, options.unroll)


def _lowered(program: Program) -> Callable[[], Any]:
    return functools.partial(program._idle, KEY, _on_devices.lower)


def _whitehouse(trials: int, task: Any, changed: dict[str, int]) -> Loop:
    chosen = whitehouse2022.Settings(task=(task,), mechanism=("brownian",), test=("public",))
    (passes,) = papers.programs(whitehouse2022.study(chosen), trials).values()
    return _interaction(_batched(passes["outcome"], changed), trials)


def _counts(trials: int) -> Loop:
    chosen = rogers2023.Settings(samples=(128_000,), method=("brownian",))
    (passes,) = papers.programs(rogers2023.study(chosen), trials).values()
    program = passes["outcome"]

    def one(key: Any) -> Any:
        result = program.trial.run(key)
        return result.steps, result

    def every() -> float:
        return float(np.sum(program.run_all(KEY, trials)["steps"], dtype=float))

    return Loop(trials, release._BLOCK, _lowered(program), every, one)


def _scalar(trials: int, changed: dict[str, int]) -> Loop:
    launch = nrjax.Batching().resolve_launch(billion_trials.interaction())
    program = _batched(
        montecarlo.outcomes(billion_trials.interaction(), min(launch, trials)), changed
    )
    steps = float(np.sum(program.run_all(KEY, trials)["step"] + 1.0))

    def every() -> float:
        for _, launch in program.launches(KEY, trials, 0):
            jax.block_until_ready(launch.results)
        return steps

    return _interaction(program, trials, every)


def _folding(trials: int, changed: dict[str, int]) -> Loop:
    tally = _batched(billion_trials.planned(trials), changed)

    def every() -> float:
        moments = billion_trials.folded(tally, trials)[1]["step_moments"]
        return trials * (1 + mean_and_variance(moments)[0])

    return _interaction(tally, trials, every)


def _batched(program: Program, changed: dict[str, int]) -> Program:
    """Return the program with other numbers of lanes or of steps per iteration.

    Raises:
        ValueError: `lanes` is not a multiple of the tile.
    """
    options = program.options
    new = options._replace(**changed)
    if options.lanes == options.tile:
        new = new._replace(tile=new.lanes, capacity=-(-new.capacity // new.lanes) * new.lanes)
    elif new.lanes % new.tile:
        raise ValueError(f"--lanes {new.lanes}: must be a multiple of {new.tile}, a tile")
    return dataclasses.replace(program, options=new)


LOOPS: dict[str, tuple[Callable[..., Loop], tuple[int, int, int]]] = {
    "stepping": (_stepping, (200, 100_000, 1_000_000)),
    "scalar": (_scalar, (2000, 1_000_000, 2**25)),
    "folding": (_folding, (2000, 1_000_000, 10_000_000)),
    "counts": (_counts, (4, 1000, 100_000)),
    "logistic": (functools.partial(_whitehouse, task="logistic"), (8, 1000, 100_000)),
    "ridge": (functools.partial(_whitehouse, task="ridge"), (2, 128, 4096)),
}
"""Each loop, and its numbers of trials: tiny, on a CPU and on an accelerator."""

_REFILLED = ("scalar", "folding", "logistic", "ridge")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The measurements of a loop.

    Attributes:
        loop: the loop.
        seconds: median seconds of a run.
        steps: total number of steps.
        drawn: mean number of hashes per step.
        turn: launches of an iteration.
    """

    loop: Loop
    seconds: float
    steps: float
    drawn: float
    turn: Turn

    @property
    def hashes(self) -> float:
        """Return the number of hashes per second."""
        return self.drawn * self.steps / self.seconds


def measure(loop: Loop, repeats: int) -> Measurement:
    """Run a loop, and count its hashes and launches."""
    turn = Compiled(loop.lowered().compile().as_text()).turn(loop.inner_steps // loop.unroll)
    steps: list[float] = []
    seconds = statistics.median(roofline.spent(lambda: steps.append(loop.run()), repeats))
    sample = jnp.arange(min(loop.trials, _SAMPLE), dtype=jnp.uint32)

    def few(key: Any) -> Any:
        return jax.lax.map(lambda number: loop.one(nrjax.trial_key(key, number)), sample)

    (taken, _), drawn = hashes.drawn(few, KEY)
    return Measurement(loop, seconds, steps[0], drawn / np.sum(taken), turn)


def _line(name: str, result: Measurement, limit: float) -> tuple[str, ...]:
    turn = result.turn
    return (
        name,
        f"{result.loop.lanes or ''}",
        f"{result.seconds:.3g}",
        f"{result.steps / result.seconds:.3g}",
        f"{result.drawn:.3g}",
        f"{result.hashes / limit:.2%}",
        f"{result.loop.inner_steps}",
        f"{turn.step.kernels / result.loop.unroll:.3g}",
        f"{turn.whole.kernels}",
        f"{turn.whole.decisions}",
    )


def _variants(name: str, inner: Sequence[int], lanes: Sequence[int]) -> Iterator[dict[str, int]]:
    """Yield the batching options to try for a loop."""
    for steps in (inner if name in _REFILLED else ()) or (None,):
        for width in (lanes if name in _REFILLED else ()) or (None,):
            both = {"inner_steps": steps, "lanes": width}
            yield {name: number for name, number in both.items() if number is not None}


def devices(platform: str) -> list[Any]:
    """Select a platform and return its devices. Call it before JAX is used.

    Raises:
        LookupError: the platform has no device.
    """
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    try:
        return jax.devices(platform)
    except RuntimeError as error:
        raise LookupError(
            f"--platform {platform}: JAX finds no such device here (needs {_INSTALL[platform]}): "
            + str(error).splitlines()[0]
        ) from error


def show(
    platform: str, names: Sequence[str], quick: bool, inner: Sequence[int], lanes: Sequence[int]
) -> None:
    """Print the table.

    Args:
        platform: "cpu", "gpu" or "tpu".
        names: names of `LOOPS`; empty for all.
        quick: whether to use tiny sizes.
        inner: numbers of steps per iteration to try; empty for the platform's default.
        lanes: numbers of lanes to try; empty for the platform's default.

    Raises:
        LookupError: there is no such device, or no loop with such a name.
    """
    for name in names:
        if name not in LOOPS:
            raise LookupError(f"There is no loop {name!r}: choose among {', '.join(LOOPS)}.")
    machines = devices(platform)
    cpu = platform == "cpu"
    limit = hashes.measured(machines, 2**14 if quick else 2**20 if cpu else 2**24)
    kind = machines[0].device_kind
    stated = hashes.STATED.get(kind)
    print(
        f"{len(machines)} x {kind}: {limit:.3g} hashes/s alone, so {hashes.OPERATIONS * limit:.3g} "
        f"integer operations/s"
        + (f" ({len(machines) * stated:.3g} by data sheet)" if stated else "")
    )
    widths = [max(len(heading), 9) for heading in HEADINGS]
    print("  ".join(map(str.rjust, HEADINGS, widths)), flush=True)
    reached = 0.0
    for name in names or LOOPS:
        make, sizes = LOOPS[name]
        trials = sizes[0 if quick else 1 if cpu else 2]
        for changed in _variants(name, inner, lanes):
            options = {"changed": changed} if name in _REFILLED else {}
            result = measure(make(trials, **options), 1 if quick else 3)
            print("  ".join(map(str.rjust, _line(name, result, limit), widths)), flush=True)
            if name == "scalar":
                reached = max(reached, result.hashes / limit)
    if reached:
        print(f"XLA's scalar loop is at {reached:.2g} of the limit.")
        if platform == "gpu":
            one_kernel.main(["--trials", "4096"] if quick else [])
