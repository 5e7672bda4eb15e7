"""The progress of a run: bars on a terminal, lines in a log."""

import importlib.util
import threading
import time
from collections.abc import Callable

from nrjax._extras import missing

try:
    import rich.console
    import rich.progress
    import rich.text
except ModuleNotFoundError as error:
    raise missing(error.name, "progress") from error

_LINES = 20
"""Most passes whose progress is on the screen."""

_PAUSE = 10.0
"""Seconds without a line after which a log gets one."""

Clock = Callable[[], float]


class _Pass:
    """How far a pass over a case is."""

    def __init__(self, clock: Clock, trials: int, done: int):
        self._clock, self._last = clock, clock()
        self.trials, self.done = trials, done
        self._new, self._seconds, self._waiting = 0, 0.0, "compiling"

    def compiled(self) -> None:
        self._last, self._waiting = self._clock(), "first trials"

    def advance(self, trials: int, seconds: float) -> None:
        self._last = self._clock()
        self.done += trials
        self._new += trials
        self._seconds += seconds

    def __str__(self) -> str:
        """Say what the pass waits for; once its first trials are done, their pace and the rest."""
        waited = self._clock() - self._last
        if not self._new:
            if self.done == self.trials:
                return "there already"
            return self._waiting + (f" for {waited:,.0f} s" if waited >= 1 else "")
        each = self._seconds / self._new
        rate = f"{1 / each:,.0f}" if each < 0.1 else f"{1 / max(each, 1e-9):.2g}"
        left = max((self.trials - self.done) * each - waited, 0)
        return f"{rate} trials/s" + (f", {left:,.0f} s left" if self.done < self.trials else "")


class _Said(rich.progress.ProgressColumn):
    """The words about a pass, drawn again while nothing happens."""

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        return rich.text.Text(str(task.fields["of"]))


class _Bar:
    """Progress with trials per second and time left; a `Progress` of studies."""

    def __init__(self, console: rich.console.Console, clock: Clock):
        self._clock = clock
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(bar_width=10),
            rich.progress.MofNCompleteColumn(),
            _Said(),
            console=console,
        )

    def __enter__(self) -> "_Bar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A new line for this pass; the oldest goes where there are many."""
        if len(self._bar.task_ids) >= _LINES:
            self._bar.remove_task(self._bar.task_ids[0])
        self._pass = _Pass(self._clock, trials, done)
        self._bar.add_task(f"{case} {name}", total=trials, completed=done, of=self._pass)

    def compiled(self) -> None:
        self._pass.compiled()

    def advance(self, trials: int, seconds: float) -> None:
        self._pass.advance(trials, seconds)
        self._bar.update(self._bar.task_ids[-1], advance=trials)


class _Lines:
    """The same for a log, where nothing can be redrawn.

    A line when a pass begins, one when it ends, and one every ten seconds in between, also while
    nothing is finished.
    """

    def __init__(self, console: rich.console.Console, clock: Clock):
        self._console, self._clock = console, clock
        self._name, self._pass = "", _Pass(clock, 0, 0)
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
                if not self._told.wait(_PAUSE) and self._pass.done < self._pass.trials:
                    self._tell()

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        with self._told:
            self._name, self._pass = f"{case} {name}".strip(), _Pass(self._clock, trials, done)
            self._tell()

    def compiled(self) -> None:
        with self._told:
            self._pass.compiled()

    def advance(self, trials: int, seconds: float) -> None:
        with self._told:
            self._pass.advance(trials, seconds)
            if self._pass.done >= self._pass.trials:
                self._tell()

    def _tell(self) -> None:
        done, trials = self._pass.done, self._pass.trials
        line = f"{self._name}: {done:,} of {trials:,} trials, {self._pass}"
        self._console.print(line, soft_wrap=True, highlight=False)
        self._console.file.flush()
        self._told.notify()


def progress(
    console: rich.console.Console | None = None, clock: Clock = time.monotonic
) -> _Bar | _Lines:
    """Bars on a terminal, and in a notebook that has ipywidgets; lines anywhere else."""
    console = rich.console.Console() if console is None else console
    widgets = importlib.util.find_spec("ipywidgets") is not None
    drawn = widgets if console.is_jupyter else console.is_terminal
    return _Bar(console, clock) if drawn else _Lines(console, clock)
