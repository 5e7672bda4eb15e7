"""Question: which mechanism is cheapest, by dimension, accuracy and kind of test?

    python -m benchmarks.phase [--trials 1024] [--out phase.png] [--quick]
    python -m benchmarks.phase --values "vector mean" --errors 100

Each cell is one `nrjax.choose` with a confidence of 0.9: of all candidates that meet the error, the
one that is cheapest in most trials, by a race with anytime-valid intervals. Two kinds of values:

* `histogram`: counts of d bins, of which a row changes two by 1. The l1-sensitivity is 2 and the
  l2-sensitivity the square root of 2, whatever d. The error is the largest error of a bin.
* `vector mean`: the mean of vectors of l2 norm at most 1. The l1-sensitivity grows as the square
  root of d. The error is the l2 norm of the error.

Of each noise one candidate per test is compared: Brownian noise has the minimax boundary, and
private tests have Laplace noise. Other boundaries and exponential noise differ by a few per cent.

The accuracy is the error in units of the l2-sensitivity. The numbers themselves do not matter, as
noise is added to them. With "=" the candidates are practically equal: none costs more than 2 % more
in most trials. Only epsilons that are pure or probabilistic are compared.
"""

import argparse
import time

import numpy as np

import nrjax
from benchmarks.rows import Row
from nrjax.choice.candidates import PRIVATE, PUBLIC, candidates
from nrjax.choice.plan import Plan
from nrjax.choice.racing import Verdict

DIMENSIONS = 1, 10, 100, 1000, 10_000
ERRORS = 10, 100, 1000
CONFIDENCE = 0.9
TESTS = {"public": PUBLIC, "private": PRIVATE}
FAMILIES = {
    "laplace": "#c1651a",
    "spherical-laplace": "#8fbf9b",
    "discrete-laplace": "#f2c078",
    "brownian": "#14476f",
}
KINDS = "histogram", "vector mean"


def question_of(kind, dimension, ratio):
    """Return a question and the error that is `ratio` times the l2-sensitivity."""
    if kind == "histogram":
        question = nrjax.questions.histogram(np.array([0.5]), np.arange(dimension + 1.0))
        return question, ratio * 2**0.5
    rows = np.zeros((2, dimension))
    return nrjax.questions.vector_mean(rows, row_norm=1.0), float(ratio)


def plain(question):
    """Return a question with one candidate of each noise and test, which compile sooner."""

    def interactions(error):
        listed = candidates(question, Plan(error, CONFIDENCE, None))
        names = [f"{noise}{test}" for noise in FAMILIES for test in ("", "-private")]
        kept = {name: listed[name] for name in names if name in listed}
        return {name: nrjax.Case(trial=c.interaction, goal=c.goal) for name, c in kept.items()}

    return nrjax.questions.custom(interactions)


def family(name):
    """Return the noise of a candidate."""
    return max((each for each in FAMILIES if name.startswith(each)), key=len)


def cell(choice, section):
    """Return the best row of a section and the names of its equals, or None if all miss."""
    rows = [row for row in choice.table if row.section == section]
    best = [row for row in rows if row.verdict.leads]
    equal = [row.name for row in rows if row.verdict == Verdict.EQUAL]
    return (best[0], equal) if best else None


def cells(dimensions, errors, trials, kinds=KINDS):
    """Generate the kind, dimension, error, test, best row and equals of each cell, and seconds."""
    for kind in kinds:
        for dimension in dimensions:
            for ratio in errors:
                started = time.perf_counter()
                question, error = question_of(kind, dimension, ratio)
                options = {"trials": trials, "progress": False}
                choice = nrjax.choose(plain(question), error, CONFIDENCE, **options)
                seconds = time.perf_counter() - started
                for test, section in TESTS.items():
                    yield kind, dimension, ratio, test, cell(choice, section), seconds


def draw(found):
    """Return a figure: the family and the median epsilon of the best candidate of each cell."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    kinds = list(dict.fromkeys(kind for kind, *_ in found))
    figure = Figure(figsize=(9.6, 7.2), layout="constrained")
    panels = figure.subplots(len(kinds), len(TESTS), squeeze=False)
    dimensions = sorted({d for _, d, *_ in found})
    errors = sorted({ratio for _, _, ratio, *_ in found})
    hatches = dict(zip(FAMILIES, ("//", "xx", "..", ""), strict=True))
    for kind, dimension, ratio, test, best, _ in found:
        axes = panels[kinds.index(kind)][list(TESTS).index(test)]
        x, y = dimensions.index(dimension), errors.index(ratio)
        if best is None:
            text, look = "missed", {"color": "white", "ec": "0.6"}
        else:
            row, equal = best
            tied = {family(name) for name in equal} - {family(row.name)}
            text = f"{'= ' if tied else ''}{row.median:.2g}"
            noise = family(row.name)
            look = {"color": FAMILIES[noise], "ec": "white", "hatch": hatches[noise]}
        axes.bar(x, 1, 1, bottom=y - 0.5, **look)
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"}
        axes.text(x, y, text, ha="center", va="center", fontsize="small", bbox=box)
        axes.set_title(f"{kind}, {test} test", fontsize="medium")
        axes.set_xticks(range(len(dimensions)), [f"{d:,}" for d in dimensions])
        axes.set_yticks(range(len(errors)), [f"{ratio:,}" for ratio in errors])
        axes.set(xlabel="dimension", ylabel="error (l2-sensitivities)")
    marks = [
        Patch(fc=colour, ec="white", hatch=hatches[name], label=name)
        for name, colour in FAMILIES.items()
    ]
    title = "cheapest noise, with its median ε (=: practically equal to another noise)"
    figure.legend(handles=marks, title=title, loc="outside lower center", ncols=len(marks))
    return figure


def rows(quick=False):
    """Return the seconds of one cell, for the table of all benchmarks."""
    sizes = ((1,), (10,), 256) if quick else ((10,), (100,), 1024)
    seconds = next(cells(*sizes))[-1]
    note = f"{seconds:.0f} s per cell with compilation; python -m benchmarks.phase prints the map"
    return [Row("map of mechanisms by dimension and accuracy", note=note)]


def main():
    """Print the map as a table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1024, help="largest number per candidate")
    parser.add_argument("--values", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--dimensions", nargs="+", type=int, default=DIMENSIONS)
    parser.add_argument("--errors", nargs="+", type=int, default=ERRORS)
    parser.add_argument("--out", help="write the figure to this file")
    parser.add_argument("--quick", action="store_true", help="a few cells only")
    options = parser.parse_args()
    sizes = ((1, 10), (10,)) if options.quick else (options.dimensions, options.errors)
    found = []
    print("| value | d | error | test | cheapest | practically equal | median epsilon |")
    print("| --- | ---: | ---: | --- | --- | --- | ---: |")
    for kind, dimension, ratio, test, best, seconds in cells(
        *sizes, options.trials, options.values
    ):
        found.append((kind, dimension, ratio, test, best, seconds))
        name, equal, median = "all miss", "", ""
        if best is not None:
            name, equal, median = best[0].name, ", ".join(best[1]), f"{best[0].median:.3g}"
        cells_of = f"{kind} | {dimension:,} | {ratio:,} | {test} | {name} | {equal} | {median}"
        print(f"| {cells_of} |", flush=True)
    if options.out:
        draw(found).savefig(options.out, dpi=150)


if __name__ == "__main__":
    main()
