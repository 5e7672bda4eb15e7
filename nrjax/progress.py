"""The progress of a run on a terminal."""

from typing import Any

import rich.console
import rich.progress

_LINES = 20
"""Most passes whose progress is on the screen."""


class Bar:
    """Progress with trials per second and time left; a `Progress` of studies."""

    def __init__(self, console: rich.console.Console):
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(bar_width=10),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.fields[rate]}"),
            rich.progress.TimeRemainingColumn(),
            console=console,
        )
        self._tasks: list[Any] = []
        self._trials, self._seconds = 0, 0.0

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A new line for this pass; the oldest goes where there are many."""
        self._trials, self._seconds = 0, 0.0
        if len(self._tasks) >= _LINES:
            self._bar.remove_task(self._tasks.pop(0))
        rate = "there already" if done == trials else "compiling"
        self._tasks.append(
            self._bar.add_task(f"{case} {name}", total=trials, completed=done, rate=rate)
        )

    def advance(self, trials: int, seconds: float) -> None:
        """More trials are done."""
        self._trials += trials
        self._seconds += seconds
        rate = f"{self._trials / self._seconds:,.0f} trials/s"
        self._bar.update(self._tasks[-1], advance=trials, rate=rate)
