"""The results of a run, read from its folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax.study import report
from nrjax.study.folder import REPORT, SUMMARY, write_document
from nrjax.study.frame import Frame
from nrjax.study.histograms import Histogram, read_histograms
from nrjax.study.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REMEMBERED = 32
"""Passes of summaries to remember: a study may have hundreds, which is more than fits."""


class Reporting:
    """What is told of the results of a study: override what should be told in other words.

    Everything is made from the results alone, so that `nrjax summary` and `nrjax plot` need no
    data.
    """

    case_facts: tuple[str, ...] = ()
    """Labels that every case must have; they come first in its summary."""

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """What the summary says of a case besides the usual; strict JSON."""
        return {}

    def findings(self, results: Results) -> dict[str, Any]:
        """What the summary says besides its cases, by name; strict JSON."""
        return {}

    def report(self, results: Results, summary: Mapping[str, Any]) -> report.Report:
        """The table and what should be said beside it, of results and their summary."""
        return report.standard(results, summary)

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Figure]]:
        """What draws each figure, by the name of its file."""
        from nrjax.study import figures  # slow to import

        return figures.standard(results)


class Results(Frame):
    """Results of a finished run; by a case's name its trials as an `xarray.Dataset`.

    `results["brownian"]` has what is kept of an outcome along the axis `trial`, with `stopped`,
    `stopping_epsilon` (infinite where the trial did not stop) and, where there is a goal,
    `shortfall`; `results["brownian/curve"]` is another pass. Where only summaries were kept these
    are counts and moments along `chunk`: use `distribution`, which is the same for both.

    Trials that are added to the folder later are not part of it: open the folder again for these.

    Args:
        store: where they are.
        reporting: what tells of them.

    Raises:
        UnfinishedError: the run is not finished.
    """

    folder: Path
    """Where they are."""
    spent: dict[str, float]
    """Seconds that this call took for `data` and for `figures`, where it needed them."""
    _told: report.Report | None = None
    """What was written, to be shown."""

    def __init__(self, store: Store, reporting: Reporting | None = None):
        store.check_finished()
        super().__init__(store.cases, store.settings, reporting or Reporting())
        self.store, self.folder, self.spent = store, store.folder, {}
        self._found: dict[tuple[str, str], dict[str, Histogram]] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Results:
        """Those in a folder, told of in the standard way; raises what `Store.open` does."""
        return cls(Store.open(folder))

    def __repr__(self) -> str:
        return f"Results of {self.trials:,} trials of {', '.join(self.cases)} in {self.folder}"

    def _kept(self, case: str, name: str) -> dict[str, np.ndarray]:
        return self.store.arrays(case, name)

    def seconds(self, case: str) -> dict[str, float]:
        """Seconds that a case took in all calls so far: `compile`, `run`, `curves`."""
        return self.store.seconds(case)

    def folds(self, case: str, name: str = "outcome") -> dict[str, Histogram]:
        """What was counted of the trials of a pass, by variable."""
        if (case, name) not in self._found:
            while len(self._found) >= _REMEMBERED:
                self._found.pop(next(iter(self._found)))
            self._found[case, name] = read_histograms(self.store, case, name)
        return self._found[case, name]

    _folds = folds

    def table(self) -> report.Report:
        """The table of the report, with its remarks."""
        return self._told or self._report(self.summary())

    def _report(self, found: dict[str, Any]) -> report.Report:
        made = self.reporting.report(self, found)
        return made._replace(remarks=(*made.remarks, *report.times(found, self.spent)))

    def conclude(self) -> None:
        """Write summary.json, report.md and the figures; only under the store's lock.

        Raises:
            FileExistsError: there is a file of that name which nrjax has not written.
            OSError: the disk is full, or failed.
        """
        found = self.summary()
        write_document(self.folder, SUMMARY, json.dumps(found, indent=1, allow_nan=False) + "\n")
        before = time.monotonic()
        self.draw()
        self.spent["figures"] = time.monotonic() - before
        self._told = self._report(found)
        write_document(self.folder, REPORT, str(self._told))

    def draw(self) -> None:
        """Write the figures; only under the store's lock."""
        from nrjax.study import drawing  # slow to import

        for name, figure in self.plot().items():
            drawing.save(self.store, name, figure)
