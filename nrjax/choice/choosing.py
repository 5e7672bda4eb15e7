"""`nrjax.choose`: which mechanism answers a question at the smallest cost."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nrjax._base.keys import study_key
from nrjax._base.modes import neutral_config
from nrjax._base.notions import Notion
from nrjax._base.outcome import Outcome, Status, describe_failures
from nrjax._base.quantiles import order_statistics
from nrjax._base.sensitivities import shared_relation
from nrjax._base.tracing import sharing_traces
from nrjax._base.validation import as_floats, check, check_integer, check_number
from nrjax.choice.candidates import FIXED, ORACLE, Candidate, Maker, candidates
from nrjax.choice.plan import SEARCH, Plan
from nrjax.choice.question import Custom, Question
from nrjax.choice.racing import FIRST_ROUND, Entry, Limits, Verdict, race
from nrjax.choice.report import Choice, Row, advice
from nrjax.simulation.failures import FailedTrialsWarning
from nrjax.simulation.montecarlo import outcomes
from nrjax.simulation.program import Program
from nrjax.statistics import anytime
from nrjax.study.ahead import compiled_ahead
from nrjax.study.case import Case
from nrjax.study.checks import check_path
from nrjax.study.files import RESULTS
from nrjax.study.release_error import RELEASE_ERROR, Coverage, coverage
from nrjax.study.results import Outcomes, Results
from nrjax.study.study import Study


@neutral_config()
def choose(
    question: Question | Custom,
    error: float | str,
    confidence: float = 0.9,
    *,
    prior: tuple[float, float] | None = None,
    level: float = 0.95,
    indifference: float = 0.02,
    trials: int | None = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = True,
    makers: Sequence[Maker] = (),
) -> Choice:
    """Find the cheapest mechanism that answers a question with an error you can accept.

    Every candidate is simulated with common random numbers. One that misses the error is not
    ranked. The others race: trials are added to those whose verdict they can change, until one is
    cheapest in most trials, or practically as cheap as the cheapest. If trials end before, the
    report names the candidates that may still be cheaper, and those that are tied. The statistics
    hold at all rounds at once. The epsilons of the best candidate come from new trials, because the
    winner of a race looks better than it is.

    >>> x = np.linspace(0.0, 100.0, 1000)
    >>> question = nrjax.questions.mean(x, bounds=(0.0, 100.0))
    >>> choice = nrjax.choose(question, error=0.5)  # doctest: +SKIP
    >>> print(choice)  # doctest: +SKIP

    Args:
        question: question from `nrjax.questions`.
        error: largest error, in the question's unit, or a percentage such as "3 %".
        confidence: least probability with which the error must be met, in (0, 1).
        prior: epsilons (low, high) between which you expect trials to stop, to which boundaries are
            tuned. They must not come from the private data.
        level: probability with which all statements of the race hold together.
        indifference: relative difference of epsilons that does not matter.
        trials: largest number of trials per candidate, at least 256; 16,384 by default. A release
            fixed in advance always has 1,024.
        seed: seed of all randomness, from 0 to 2^32 - 1.
        folder: folder for trials, as `nrjax.Study.run` writes it. A second call reads or extends
            it. In a folder all candidates have as many trials as the longest race.
        progress: whether to print progress.
        makers: functions that add candidates of your own. For each mechanism of the question,
            `maker(question, mechanism, plan)` yields pairs of a name, such as "mine" for
            "laplace-mine", and an `nrjax.choice.candidates.Candidate`. `plan.error` is the error.

    Raises:
        ValueError: an argument is out of range.

    Warns:
        FailedTrialsWarning: trials of a candidate failed, such as by a NaN score. They count as
            trials that missed the error.
    """
    trials = check_integer("trials", SEARCH.trials if trials is None else trials, FIRST_ROUND)
    limits = Limits(confidence, level, indifference, trials)
    _check_arguments(question, limits, seed, progress, folder, prior)
    target = question.error(error)
    doubts = question.doubts(target)
    for text in doubts:
        warnings.warn(text, stacklevel=3)  # past the decorator
    with sharing_traces():
        listed = candidates(question, Plan(target, confidence, prior, seed), makers)
        runs = _Runs(question.name, listed, seed, folder, progress)
        runs.read_folder()
        with compiled_ahead(runs.needed(), runs.key) as runs.compiled:
            rows = list(_rows(runs, limits))
    failures = runs.failures()
    if failures:
        text = f"{' '.join(failures)} They count as trials that missed the error."
        warnings.warn(text, FailedTrialsWarning, stacklevel=3)  # past the decorator
    return _choice(question, target, confidence, doubts, runs, rows)


def _check_arguments(
    question: Any, limits: Limits, seed: Any, progress: Any, folder: Any, prior: Any
) -> None:
    """Check the arguments of `choose`, except for those that need the question."""
    is_question = isinstance(question, (Question, Custom))
    check(is_question, "question", question, "one of nrjax.questions, such as mean(x, bounds)")
    for name in ("confidence", "level"):
        check_number(name, getattr(limits, name), lambda n: (n > 0) & (n < 1), "in (0, 1)")
    check_number("indifference", limits.indifference, lambda n: n >= 0, "at least 0")
    check_integer("seed", seed, 0, 2**32 - 1)
    check(isinstance(progress, bool), "progress", progress, "True or False")
    if folder is not None:
        check_path(folder)
    if prior is not None:
        expected = "epsilons (low, high) with 0 < low < high, or None"
        as_floats("prior", prior, lambda n: n.shape == (2,) and 0 < n[0] < n[1] < np.inf, expected)


class _Runs:
    """The trials of the candidates of a choice, in memory or in a folder.

    Args:
        name: name of the question.
        listed: candidates by name.
        seed: seed of all trials.
        folder: folder for the trials, or None.
        progress: whether to print progress.
    """

    def __init__(
        self, name: str, listed: Mapping[str, Candidate], seed: int, folder: Any, progress: bool
    ):
        self.listed, self.key = listed, study_key(seed)
        self._folder, self._progress = folder, progress
        self._programs = {n: outcomes(c.interaction, SEARCH.launch) for n, c in listed.items()}
        cases = {n: Case(trial=c.interaction, goal=c.goal) for n, c in listed.items()}
        self._study = Study(f"choice: {name}", cases, quantities=RELEASE_ERROR)
        self._options: Any = {"seed": seed, "progress": progress}
        self.compiled: Callable[[Program], object] = lambda program: None
        self._first: dict[str, Mapping[str, np.ndarray]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._most = 0
        self._statuses: dict[str, Counter[int]] = defaultdict(Counter)
        self._stored: Results | None = None

    def read_folder(self) -> None:
        """Finish the run in the folder, if there is one, and use its trials from now on."""
        if self._folder is not None and (Path(self._folder) / RESULTS).is_dir():
            self._stored = self._study.run(self._folder, **self._options)

    def sections(self) -> dict[str, list[str]]:
        """Return the names of candidates that may be ranked against each other, by section."""
        sections: dict[str, list[str]] = {}
        differ = len({candidate.delta for candidate in self.listed.values()} - {0.0}) > 1
        for name, candidate in self.listed.items():
            bounds_losses = Notion(candidate.notion).bounds_losses
            notes = [] if bounds_losses else [f"{candidate.notion} epsilon"]
            notes += [f"delta = {candidate.delta:.6g}"] if differ and candidate.delta else []
            title = f"{candidate.section} ({', '.join(notes)})" if notes else candidate.section
            sections.setdefault(title, []).append(name)
        return sections

    def needed(self) -> list[Program]:
        """Return the programs of trials that are not stored, in the order of their first runs."""
        names = [name for section in self.sections().values() for name in section]
        return [self._programs[name] for name in names] if self._stored is None else []

    def work(self, name: str) -> float:
        """Return the expected seconds per trial, up to a factor: steps times size of the value."""
        steps = self._first[name]["step"] + 1 if name in self._first else np.ones(1)
        return float(np.mean(steps)) * np.size(self.listed[name].interaction.value.number)

    def draw(self, name: str, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Run trials of a candidate, as `nrjax.choice.racing.Draw` describes, or read them."""
        names = ("stopped", "utility", "epsilon", "stopping_epsilon", "step", "status")
        self._most = max(self._most, first + count)
        if self._stored is not None and self._stored.trials >= first + count:
            arrays = {n: self._stored.values(name, n)[first : first + count] for n in names}
        else:
            outcome = self._simulate(name, first, count)
            self._outcomes.setdefault(name, outcome)
            arrays = {field: np.asarray(getattr(outcome, field)) for field in names}
        self._first.setdefault(name, arrays)
        self._statuses[name].update(arrays["status"].tolist())
        met = arrays["stopped"] & (arrays["utility"] >= self.listed[name].goal)
        return np.asarray(arrays["stopping_epsilon"], np.float64), met

    def _simulate(self, name: str, first: int, count: int) -> Outcome:
        """Run trials in memory."""
        if self._progress:
            print(f"{name}: {count:,} trials", file=sys.stderr)
        program = self._programs[name]
        self.compiled(program)
        return Outcome(**program.run_all(self.key, count, first))

    def rerun(self, name: str, count: int) -> tuple[np.ndarray, np.ndarray, Coverage | None]:
        """Run new trials of a candidate.

        Returns:
            Their epsilons, whether each met the target, and the error of their releases (None if it
            is unknown).
        """
        candidate, outcome = self.listed[name], self._simulate(name, SEARCH.rerun_first, count)
        met = np.asarray(outcome.stopped) & (np.asarray(outcome.utility) >= candidate.goal)
        self._statuses[name].update(np.asarray(outcome.status).tolist())
        covered = coverage(candidate.interaction, outcome)
        return np.asarray(outcome.stopping_epsilon, np.float64), met, covered

    def failures(self) -> tuple[str, ...]:
        """Return a sentence for each candidate with trials that failed."""
        counts = {
            name: {Status(number): count for number, count in counter.items()}
            for name, counter in self._statuses.items()
        }
        texts = (describe_failures(count, f" of {name}") for name, count in counts.items())
        return tuple(f"{text}." for text in texts if text)

    def reachable(self, confidence: float) -> str:
        """Return a sentence on the candidate whose score falls short of its goal by least.

        Releases at one epsilon only count if no candidate tests its releases.
        """
        tested = [n for n in self._first if self.listed[n].section not in (FIXED, ORACLE)]
        short = {}
        for name in tested or self._first:
            arrays = self._first[name]
            missing = self.listed[name].goal - np.asarray(arrays["utility"], np.float64)
            missing = np.where(np.isnan(missing), np.inf, missing)
            short[name] = float(order_statistics(missing, confidence))
        name = min(short, key=short.__getitem__)
        goal, best = self.listed[name].goal, self.listed[name].best
        most = float(np.max(self._first[name]["epsilon"]))
        reached = f"a score of at least {goal - short[name]:.3g}, where {goal:.3g} is the goal,"
        if best is not None:
            reached = f"an error of {best - goal + short[name]:.3g}"
        return (
            f"{name} comes closest: {reached} in {confidence:.0%} of runs, at an epsilon of up to "
            f"{most:.3g}."
        )

    def results(self) -> Outcomes | Results:
        """Return the trials of all candidates: those of the first round, or of the folder."""
        if self._folder is not None:
            # All candidates get the trials of the longest race, so that they can be compared.
            more = self._stored is None or self._stored.trials < self._most
            trials = self._most if more else None
            return self._study.run(self._folder, trials=trials, **self._options)
        first = {
            name: jax.tree.map(lambda leaf: np.asarray(leaf)[:FIRST_ROUND], outcome)
            for name, outcome in self._outcomes.items()
        }
        goals = {name: candidate.goal for name, candidate in self.listed.items()}
        return Outcomes(first, goals, {name: c.notion for name, c in self.listed.items()})


def _rows(runs: _Runs, limits: Limits) -> Iterator[Row]:
    """Generate the rows of the table, section by section, the cheapest first.

    The level is divided among the sections.
    """
    sections = runs.sections()
    alpha = (1 - limits.level) / len(sections)
    for section, names in sections.items():
        if section.startswith((FIXED, ORACLE)):
            entries = {name: Entry(verdict=Verdict.FIXED) for name in names}
            for name, entry in entries.items():
                drawn = runs.draw(name, 0, SEARCH.fixed_trials)
                entry.add(*drawn, limits, alpha / len(names))
                if entry.reached is False:
                    entry.verdict = Verdict.MISSED
                entry.epsilon[:] = entry.epsilon.min()  # known, also if the target is missed
        else:
            entries = race(names, runs.draw, limits._replace(level=1 - alpha), runs.work)
        best = next((name for name in names if entries[name].verdict.leads), None)
        rows = (_row(runs, section, name, entries, best, 1 - limits.level) for name in names)
        yield from sorted(rows, key=lambda row: ([*Verdict].index(row.verdict), row.median))


def _row(
    runs: _Runs,
    section: str,
    name: str,
    entries: Mapping[str, Entry],
    best: str | None,
    alpha: float,
) -> Row:
    """Return the row of a candidate. The best one is estimated by new trials."""
    entry, cheaper, covered = entries[name], math.nan, None
    epsilon, met = entry.epsilon, entry.met
    if name == best:
        epsilon, hits, covered = runs.rerun(name, epsilon.size)
        met = int(hits.sum())
    elif best is not None:
        common = min(epsilon.size, entries[best].epsilon.size)
        cheaper = float(np.mean(epsilon[:common] < entries[best].epsilon[:common]))
    ordered = np.sort(epsilon)
    median, high = order_statistics(ordered, (0.5, 0.9)).tolist()
    return Row(
        name=name,
        section=section,
        verdict=entry.verdict,
        met=met / epsilon.size,
        met_interval=anytime.interval(met, epsilon.size, alpha),
        median=median,
        median_interval=anytime.quantile_interval(ordered, 0.5, alpha),
        high=high,
        high_interval=anytime.quantile_interval(ordered, 0.9, alpha),
        cheaper=cheaper,
        coverage=covered,
        notion=runs.listed[name].notion,
        trials=epsilon.size,
        is_open=entry.is_open,
    )


def _choice(
    question: Question | Custom,
    target: float,
    confidence: float,
    doubts: Sequence[str],
    runs: _Runs,
    rows: Sequence[Row],
) -> Choice:
    """Return the choice that the rows of the table make."""
    best = next((row for row in rows if row.verdict.leads), None)
    rivals = [row for row in rows if best is not None and row.section == best.section]
    return Choice(
        question=question.name,
        error=target,
        confidence=confidence,
        best=None if best is None else best.name,
        practically_equal=tuple(row.name for row in rivals if row.verdict == Verdict.EQUAL),
        missed=tuple(row.name for row in rows if row.verdict == Verdict.MISSED),
        table=tuple(rows),
        advice=advice(rows, best, runs.reachable(confidence), confidence),
        results=runs.results(),
        relation=shared_relation(**{n: c.interaction for n, c in runs.listed.items()}),
        failures=runs.failures(),
        tied=tuple(row.name for row in rivals if row.verdict == Verdict.TIED),
        open=tuple(row.name for row in rivals if row.is_open),
        remarks=(*question.remarks, *(f"Warning: {text}" for text in doubts)),
    )
