"""Figures of `rogers2023` show the results, whatever a run leaves out."""

import itertools

import numpy as np
import pytest

from nrjax.datasets import zipf_counts, zipf_law
from nrjax.papers import rogers2023
from nrjax.study.plotting import STYLES
from tests.invented import bands, check_margin, ends_of, invented
from tests.marks import long_except

MARKS, TRIALS = 20, 30
SIZES = (8000, 128_000)
METHODS = ("brownian", "doubling", "laplace")


def stored_counts(samples):
    """Return the store's counts: of the Zipf law, or of 40 items, two with count 0."""
    if samples is None:
        counts = np.random.default_rng(1).geometric(1e-3, 40)
        counts[:2] = 0
        return {"counts": counts.tolist(), "expected": None}
    counts = zipf_counts(samples).counts.astype(int).tolist()
    return {"counts": counts, "expected": (samples * zipf_law()).tolist()}


def outcome(number, samples, trials):
    """Return plausible arrays of a method, without results for one sample."""
    rng, most = np.random.default_rng(number), 100 - 20 * number
    results = rng.binomial(most, 1e-9 if samples == 1 else 0.8, trials).astype("int32")
    precision = np.where(results > 0, rng.uniform(0.9, 1.0, trials), 1.0)
    by = np.floor(results[:, None] * np.linspace(1 / MARKS, 1, MARKS) ** 0.5).astype("int32")
    return {"returned": results, "precision": precision, "returned_by": by}


def results_of(
    folder,
    data=(("zipf", SIZES[0]), ("zipf", SIZES[1])),
    methods=METHODS[:2],
    filters=("unified",),
    smallest=(1e-4,),
    trials=TRIALS,
):
    cases, counts = {}, {}
    for (name, samples), start, method, guard in itertools.product(
        data, smallest, methods, filters
    ):
        dataset = name if samples is None else f"{name}-{samples}"
        counts[dataset] = stored_counts(samples)
        facts = {
            "data": name,
            "samples": samples,
            "method": method,
            "filter": guard,
            "alpha": 0.1,
            "epsilon": 10.0,
            "delta": 1e-6,
            "smallest": start,
            "items": len(counts[dataset]["counts"]),
            "total": sum(counts[dataset]["counts"]),
            "unit": "samples" if name == "zipf" else "rows",
            "dataset": dataset,
        }
        arrays = outcome(METHODS.index(method), samples, trials)
        cases[f"{dataset}-{method}-{guard}-{start:g}"] = facts, arrays
    share = {"mark": ("share", tuple(mark / MARKS for mark in range(1, MARKS + 1)))}
    return invented(folder, cases, rogers2023.reporting, counts=counts, along=share)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return results_of(tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def figures(two):
    return two.plot()


def test_counts_are_those_of_the_store_with_the_zipf_law(figures):
    (axes,) = figures["counts"].axes
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    laws = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata())]
    for size, drawn, law in zip(SIZES, points, laws, strict=True):
        counts = zipf_counts(size).counts
        np.testing.assert_array_equal(drawn.get_ydata(), counts[counts > 0])
        np.testing.assert_array_equal(drawn.get_xdata(), np.flatnonzero(counts) + 1)
        np.testing.assert_allclose(law.get_ydata(), size * zipf_law())


def test_other_counts_are_sorted_and_zeros_are_reported(tmp_path):
    results = results_of(tmp_path, (("own.csv", None),))
    (axes,) = results.plot("counts")["counts"].axes
    (drawn,) = axes.lines
    assert (np.diff(drawn.get_ydata()) <= 0).all()
    assert drawn.get_ydata().size == 38
    assert "2 of count 0 not shown" in axes.get_legend().get_texts()[0].get_text()
    assert axes.get_xlabel() == "rank"


def test_means_and_bands_are_those_of_the_trials(two, figures):
    above, below = figures["returned"].axes
    for place, size in enumerate(SIZES):
        for number, method in enumerate(METHODS[:2]):
            arrays, style = two[f"zipf-{size}-{method}-unified-0.0001"], STYLES[number]
            for axes, name in ((above, "returned"), (below, "precision")):
                bars, values = axes.containers[2 * place + number], arrays[name].values
                assert bars[0].get_color() == style.line
                np.testing.assert_allclose(bars[0].get_ydata()[0], values.mean(), rtol=1e-6)
                ends = values.mean() + values.std() * np.array([-1, 1])
                np.testing.assert_allclose(bars[2][0].get_segments()[0][:, 1], ends, rtol=1e-5)
            axes = figures["budget"].axes[place]
            values = np.sort(arrays["returned_by"].values, axis=0)
            line = next(line for line in axes.lines if line.get_color() == style.line)
            np.testing.assert_allclose(line.get_xdata(), np.arange(MARKS + 1) / MARKS)
            np.testing.assert_allclose(line.get_ydata(), [0, *values.mean(axis=0)], rtol=1e-6)
            (band,) = bands(axes, style)
            assert ends_of(band)[1] == (values[1, -1], values[28, -1])
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["8,000", "128,000"]
    assert above.get_ylabel() == "results returned"
    assert "within 0.1" in below.get_ylabel()


EXTREMES = {
    "one trial of one case": {"data": (("zipf", 8000),), "methods": ("doubling",), "trials": 1},
    "nothing": {"data": (("zipf", 1),), "trials": 4},
    "everything": {
        "data": (("zipf", 8000), ("a-much-longer-name-than-that.csv", None)),
        "methods": METHODS,
        "filters": ("unified", "gaussian", "renyi"),
        "smallest": (1e-4, 1e-8),
    },
}


@pytest.mark.parametrize("which", long_except(EXTREMES, "nothing"))
def test_incomplete_runs_are_drawn_whole_and_without_a_warning(tmp_path, which):
    figures = results_of(tmp_path, **EXTREMES[which]).plot()
    for figure in figures.values():
        check_margin(figure)
    assert list(figures) == ["counts", "returned", "budget"]
    if which == "nothing":  # precision is one without results
        _, below = figures["returned"].axes
        assert [bars[0].get_ydata()[0] for bars in below.containers] == [1, 1]
