"""What the studies share: the facts of a run, and filling a store from compiled programs."""

import dataclasses
import importlib.metadata
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

import nrjax
from nrjax.keys import study_key
from nrjax.montecarlo import Program
from nrjax.studies.store import Store

__all__ = ["Progress", "chunk_size", "facts", "fill", "simulate"]


class Progress(Protocol):
    """Is told how a run goes on."""

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A pass of a case begins, with `done` of its `trials` there already; it compiles first."""
        ...

    def advance(self, trials: int, seconds: float) -> None:
        """So many more trials are in the store; simulating them took so long."""
        ...


def facts(study: str, seed: int, settings: Any) -> dict[str, Any]:
    """What `summary.json` says of a run as a whole; `settings` is a dataclass."""

    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        return list(value) if isinstance(value, tuple) else value

    fields = dataclasses.asdict(settings)
    return {
        "study": study,
        "nrjax": nrjax.__version__,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "platform": platform.platform(),
        "device": jax.devices()[0].platform,
        "precision": str(jnp.result_type(float)),
        "seed": seed,
        "settings": {name: plain(value) for name, value in fields.items()},
    }


def chunk_size(trials: int, chunk: int | None) -> int:
    """Trials between two writes to a store: `chunk`, if that is given.

    Else small enough for a bar that moves and little to lose, large enough to fill the lanes.
    """
    usual = min(4096, max(1024, 1 << (trials // 16).bit_length()))
    return min(usual if chunk is None else chunk, trials)


def fill(
    store: Store,
    key: Array,
    programs: Mapping[str, Mapping[str, Program]],
    progress: Progress | None = None,
) -> None:
    """Run every chunk that is not done yet; kill it at any moment and call it again.

    Args:
        store: where the results go.
        key: the study's key; cases share it, and with it their random numbers.
        programs: by case and pass.
        progress: told of every chunk.
    """
    with store.writer() as writer:
        for case, passes in programs.items():
            for name, program in passes.items():
                layout = store.cases[case].passes[name]
                pending = writer.pending(case, name)
                if progress is not None:
                    missing = sum(
                        layout.span(chunk).stop - layout.span(chunk).start for chunk in pending
                    )
                    progress.begin(case, name, layout.trials, layout.trials - missing)
                if not pending:
                    continue
                before = time.perf_counter()
                program.compile(key)
                writer.add_seconds(case, compile=time.perf_counter() - before)
                for chunk in pending:
                    span = layout.span(chunk)
                    before = time.perf_counter()
                    results = program.run(key, span.stop - span.start, span.start)
                    seconds = time.perf_counter() - before
                    writer.add_seconds(case, run=seconds)
                    kept = {variable: results[variable] for variable in layout.variables}
                    writer.write(case, name, chunk, kept)
                    if progress is not None:
                        progress.advance(span.stop - span.start, seconds)


def simulate(
    name: str,
    settings: Any,
    setups: Callable[[Any], list[Any]],
    programs: Callable[[list[Any]], Mapping[str, Mapping[str, Program]]],
    progress: Progress | None = None,
    also: Callable[[list[Any]], dict[str, Any]] | None = None,
) -> Store:
    """Build a study's cases, then make its store in `settings.out` and fill it.

    Args:
        name: of the study.
        settings: a dataclass with `out`, `overwrite` and `seed`.
        setups: the cases of the settings, each with a `case`; nothing is written before they are.
        programs: what fills the store, by case and pass.
        progress: told of every chunk that is done.
        also: makes, of the cases, what else the store's settings should hold, such as the data;
            strict JSON.
    """
    fresh = not settings.out.exists()
    Store.check(settings.out, overwrite=settings.overwrite)
    try:
        cases = setups(settings)
    except BaseException:
        if fresh:
            settings.out.rmdir()  # nothing was written: leave no trace
        raise
    store = Store.create(
        settings.out,
        facts(name, settings.seed, settings) | ({} if also is None else also(cases)),
        [setup.case for setup in cases],
        overwrite=settings.overwrite,
    )
    fill(store, study_key(settings.seed), programs(cases), progress)
    return store
