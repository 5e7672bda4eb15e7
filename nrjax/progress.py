"""The progress of a run: bars on a terminal, lines in a log."""

import importlib.util
import threading

from nrjax._extras import missing

try:
    import rich.console
    import rich.progress
except ModuleNotFoundError as error:
    raise missing(error.name, "progress") from error

_LINES = 20
"""Most passes whose progress is on the screen."""

_PAUSE = 10.0
"""Seconds without a line after which a log gets one."""


class _Bar:
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
        self._trials, self._seconds = 0, 0.0

    def __enter__(self) -> "_Bar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A new line for this pass; the oldest goes where there are many."""
        self._trials, self._seconds = 0, 0.0
        if len(self._bar.task_ids) >= _LINES:
            self._bar.remove_task(self._bar.task_ids[0])
        rate = "there already" if done == trials else "compiling"
        self._bar.add_task(f"{case} {name}", total=trials, completed=done, rate=rate)

    def advance(self, trials: int, seconds: float) -> None:
        self._trials += trials
        self._seconds += seconds
        rate = f"{self._trials / self._seconds:,.0f} trials/s"
        self._bar.update(self._bar.task_ids[-1], advance=trials, rate=rate)


class _Lines:
    """The same for a log, where nothing can be redrawn.

    A line when a pass begins, one when it ends, and one every ten seconds in between, also while
    nothing is finished.
    """

    def __init__(self, console: rich.console.Console):
        self._console = console
        self._name, self._seconds = "", 0.0
        self._trials = self._done = self._new = 0
        self._told = threading.Condition()
        self._ended = False

    def __enter__(self) -> "_Lines":
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._told:
            self._ended = True
            self._told.notify()

    def _tick(self) -> None:
        with self._told:
            while not self._ended:
                if not self._told.wait(_PAUSE) and self._done < self._trials:
                    self._tell()

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        with self._told:
            self._name, self._trials, self._done = f"{case} {name}".strip(), trials, done
            self._new, self._seconds = 0, 0.0
            self._tell("there already" if done == trials else "compiling")

    def advance(self, trials: int, seconds: float) -> None:
        with self._told:
            self._done += trials
            self._new += trials
            self._seconds += seconds
            if self._done >= self._trials:
                self._tell()

    def _tell(self, what: str = "under way") -> None:
        if self._seconds > 0:
            left = (self._trials - self._done) * self._seconds / self._new
            ends = f", {left:,.0f} s left" if self._done < self._trials else ""
            what = f"{self._new / self._seconds:,.0f} trials/s{ends}"
        line = f"{self._name}: {self._done:,} of {self._trials:,} trials, {what}"
        self._console.print(line, soft_wrap=True, highlight=False)
        self._console.file.flush()
        self._told.notify()


def progress(console: rich.console.Console | None = None) -> _Bar | _Lines:
    """Bars on a terminal, and in a notebook that has ipywidgets; lines anywhere else."""
    console = rich.console.Console() if console is None else console
    widgets = importlib.util.find_spec("ipywidgets") is not None
    drawn = widgets if console.is_jupyter else console.is_terminal
    return _Bar(console) if drawn else _Lines(console)
