"""A printer of the progress of a run, for terminals, notebooks and logs."""

import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

_LOG_PAUSE, _REDRAW_PAUSE = 10.0, 0.5
"""The seconds between two lines of a log, and between two updates of a redrawn line."""

_BAR = 10
"""The number of characters of a progress bar."""

_BLOCKS = "█░"
"""The characters of a progress bar, where the encoding of the terminal has them."""


class Reporter:
    """A printer of the progress of a run: finished trials, trials per second and seconds left.

    Args:
        file: stream to print to.
        is_drawn: whether to draw a bar on one line per pass, which is redrawn. Otherwise a line is
            printed when a pass starts, every ten seconds, and when a pass ends.
        clock: function that returns the current value of a clock, in seconds.
    """

    def __init__(self, file: TextIO, is_drawn: bool, clock: Callable[[], float]):
        self._file, self._is_drawn, self._clock = file, is_drawn, clock
        self._full, self._empty = _BLOCKS if self._shown(_BLOCKS) == _BLOCKS else "#-"
        self._changed = threading.Condition()
        self._is_closed, self._width = False, 0
        self._start("", 0, 0)

    def __enter__(self) -> "Reporter":
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._end_line()
            self._changed.notify()

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """Show that a pass starts to compile, with `done` of its `trials` finished before."""
        with self._changed:
            self._end_line()
            self._start(f"{case} {name}".strip(), trials, done)
            self._show()

    def compiled(self) -> None:
        """Record that the compilation of the pass is finished."""
        with self._changed:
            self._last, self._activity = self._clock(), "first trials"

    def advance(self, trials: int, seconds: float) -> None:
        """Record that `trials` more trials are done, after a simulation of `seconds`."""
        with self._changed:
            self._last = self._clock()
            self._done += trials
            self._new += trials
            self._seconds += seconds
            if self._is_drawn or self._done >= self._trials:
                self._show()

    def workers(self, connected: int, paused: int, lost: int) -> None:
        """Record the numbers of workers of a cluster."""
        with self._changed:
            others = [f"{paused} paused"] * (paused > 0) + [f"{lost} lost"] * (lost > 0)
            beside = f" ({', '.join(others)})" if others else ""
            self._team = (
                f", {connected} workers{beside}" if connected != 1 else f", 1 worker{beside}"
            )
            reason = "none connected" if not connected else "all paused, they lack memory"
            was, self._waiting = self._waiting, ""
            if connected == paused:
                self._waiting = (
                    f"waiting for workers ({reason}" + f", {lost} lost" * (lost > 0) + ")"
                )
            if was and not self._waiting:
                self._last = self._clock()  # the wait was not for trials

    def _start(self, name: str, trials: int, done: int) -> None:
        self._name, self._trials, self._done = name, trials, done
        self._team = self._waiting = ""
        self._new, self._seconds, self._activity = 0, 0.0, "compiling"
        self._last = self._clock()

    def _state(self) -> str:
        """Return the current activity, or trials per second and seconds left after new trials."""
        waited = self._clock() - self._last
        if self._waiting:
            return self._waiting
        if not self._new:
            if self._done == self._trials:
                return "finished before"
            return self._activity + (f" for {waited:,.0f} s" if waited >= 1 else "") + self._team
        pace = self._seconds / self._new
        rate = f"{1 / pace:,.0f}" if pace < 0.1 else f"{1 / max(pace, 1e-9):.2g}"
        left = max((self._trials - self._done) * pace - waited, 0)
        ahead = f", {left:,.0f} s left" if self._done < self._trials else ""
        return f"{rate} trials/s{ahead}{self._team}"

    def _show(self) -> None:
        line = f"{self._name}: {self._done:,} of {self._trials:,} trials, {self._state()}"
        if not self._is_drawn:
            print(self._shown(line), file=self._file, flush=True)
        else:
            full = _BAR * self._done // max(self._trials, 1)
            bar = self._full * full + self._empty * (_BAR - full)
            line = self._shown(f"{bar} {line}")[: shutil.get_terminal_size().columns - 1]
            print(f"\r{line:{self._width}}", end="", file=self._file, flush=True)
            self._width = len(line)
        self._changed.notify()

    def _shown(self, text: str) -> str:
        """Return text with "?" in place of characters that the encoding of the stream lacks."""
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        return text.encode(encoding, "replace").decode(encoding)

    def _end_line(self) -> None:
        if self._width:
            print(file=self._file, flush=True)
            self._width = 0

    def _tick(self) -> None:
        pause = _REDRAW_PAUSE if self._is_drawn else _LOG_PAUSE
        with self._changed:
            while not self._is_closed:
                if not self._changed.wait(pause) and self._done < self._trials:
                    self._show()


def progress(
    file: TextIO | None = None,
    is_drawn: bool | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Reporter:
    """Return a reporter that prints to `file`, by default to standard output.

    By default, it redraws one line on a terminal or in a notebook, and otherwise prints lines.
    """
    output = sys.stdout if file is None else file
    can_redraw = output.isatty() or (file is None and "ipykernel" in sys.modules)
    return Reporter(output, can_redraw if is_drawn is None else is_drawn, clock)
