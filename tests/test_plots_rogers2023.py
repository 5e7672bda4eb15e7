"""Figures of `rogers2023` show what the store holds, whatever a run leaves out."""

import io
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("xarray")
import jax.numpy as jnp
import matplotlib
import matplotlib.image
from matplotlib.collections import PolyCollection

from nrjax import plots
from nrjax.datasets import zipf_counts, zipf_law
from nrjax.plots.common import STYLES
from nrjax.studies.store import Case, Coordinate, Pass, Store, Variable

MARKS, TRIALS = 20, 30
FIGURES = ("counts", "returned", "budget")
SIZES = (8000, 128_000)
COUNTS = ("returned", "precise", "attempted", "steps")
FLOAT = jnp.result_type(float).name
LAYOUT = (
    {name: Variable("int32") for name in COUNTS}
    | {"spent": Variable(FLOAT)}
    | {name: Variable("int32", (("mark", MARKS),)) for name in ("returned_by", "precise_by")}
)
BETTER = {"brownian": 1.0, "doubling": 0.7, "laplace": 0.9}
BUDGETS = {"unified": 1.0, "gaussian": 1.2, "renyi": 0.9}


def held(data, samples, items=40):
    """What the store keeps of the counts, and their number."""
    if data == "zipf":
        drawn = zipf_counts(samples).counts
        return {"counts": drawn.astype(int).tolist(), "expected": (samples * zipf_law()).tolist()}
    counts = np.random.default_rng(1).geometric(1e-3, items) - 1
    counts[:2] = 0
    return {"counts": counts.tolist(), "expected": None}


def outcome(case, rng):
    """Numbers of the study's kind."""
    best = 0.5 * case["items"] * (1.0 if case["samples"] is None else case["samples"] / 256_000)
    most = best * BETTER[case["method"]] * BUDGETS[case["filter"]]
    results = np.round(most * (1 + 0.05 * rng.normal(size=case["trials"]))).astype(int)
    results = np.maximum(results, 0)
    along = np.linspace(1 / MARKS, 1, MARKS) ** 0.5
    by = np.floor(results[:, None] * along).astype(int)
    return {
        "returned": results,
        "precise": rng.binomial(results, 0.97),
        "attempted": results + 1,
        "steps": 9 * results,
        "spent": np.full(case["trials"], 0.99),
        "returned_by": by,
        "precise_by": np.floor(0.97 * by),
    }


def rogers_store(
    folder,
    data=(("zipf", SIZES[0]), ("zipf", SIZES[1])),
    methods=("brownian", "doubling"),
    filters=("unified",),
    smallest=(1e-4,),
    trials=TRIALS,
):
    """A finished run."""
    cases, counts = [], {}
    for (name, samples), start in itertools.product(data, smallest):
        dataset = name if samples is None else f"{name}-{samples}"
        counts[dataset] = held(name, samples)
        for method, guard in itertools.product(methods, filters):
            facts = {
                "data": name,
                "samples": samples,
                "method": method,
                "filter": guard,
                "trials": trials,
                "alpha": 0.01 if name == "reddit" else 0.1,
                "epsilon": 10.0,
                "delta": 1e-6,
                "smallest": start,
                "budget": 1.0,
                "items": len(counts[dataset]["counts"]),
                "total": sum(counts[dataset]["counts"]),
                "unit": "samples" if name == "zipf" else "rows",
                "dataset": dataset,
            }
            share = tuple(mark / MARKS for mark in range(1, MARKS + 1))
            layout = Pass(trials, trials, LAYOUT, {"share": Coordinate("mark", share)})
            title = f"{dataset}-{method}-{guard}-{start:g}"
            cases.append(Case(title, facts, {"outcome": layout}))
    store = Store.create(folder, {"counts": counts}, cases)
    with store.writer() as writer:
        for case in cases:
            found = outcome(case.attributes, np.random.default_rng(0))
            chunk = {name: found[name].astype(v.dtype) for name, v in LAYOUT.items()}
            writer.write(case.name, "outcome", 0, chunk)
    return store


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return rogers_store(tmp_path_factory.mktemp("two"))


def saved(figure):
    """The picture, shape (height, width, 3)."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=60)
    data.seek(0)
    return matplotlib.image.imread(data)[..., :3]


def read(store, samples, method, variable):
    return store.read(f"zipf-{samples}-{method}-unified-0.0001", "outcome")[variable].values


def test_writes_all_figures_the_same_each_time_whatever_the_users_style(tmp_path):
    store = rogers_store(tmp_path, trials=5)
    paths = plots.plot_rogers(store)
    assert [path.name for path in paths] == [f"{n}.{s}" for n in FIGURES for s in ("png", "svg")]
    first = [path.read_bytes() for path in paths]
    assert all(data.startswith((b"\x89PNG", b"<?xml")) for data in first)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        again = [path.read_bytes() for path in plots.plot_rogers(Store.open(tmp_path))]
    assert first == again


def test_counts_are_those_of_the_store_beside_the_law(two):
    (axes,) = plots.counts(two).axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    laws = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata())]
    for size, drawn, law in zip(SIZES, points, laws, strict=True):
        counts = zipf_counts(size).counts
        np.testing.assert_array_equal(drawn.get_ydata(), counts[counts > 0])
        np.testing.assert_array_equal(drawn.get_xdata(), np.flatnonzero(counts) + 1)
        np.testing.assert_allclose(law.get_ydata(), size * zipf_law())
    assert axes.get_xlabel() == "element, by falling probability"
    assert axes.get_ylabel() == "samples of an item"


def test_other_counts_fall_and_zeros_are_said(tmp_path):
    (axes,) = plots.counts(rogers_store(tmp_path, (("own.csv", None),))).axes
    (drawn,) = axes.lines
    assert (np.diff(drawn.get_ydata()) <= 0).all()
    assert drawn.get_ydata().size == 38
    assert "2 of count 0 not shown" in axes.get_legend().get_texts()[0].get_text()
    assert axes.get_xlabel() == "rank"


def test_results_and_precision_are_means_with_standard_deviations(two):
    above, below = plots.returned(two).axes
    drawn = {
        axes: {
            (bars[0].get_xdata()[0], bars[0].get_color()): (
                bars[0].get_ydata()[0],
                bars[2][0].get_segments()[0][:, 1],
            )
            for bars in axes.containers
        }
        for axes in (above, below)
    }
    for place, size in enumerate(SIZES):
        for method, style in zip(("brownian", "doubling"), STYLES, strict=False):
            results = read(two, size, method, "returned").astype(float)
            exact = read(two, size, method, "precise") / results
            for axes, values in ((above, results), (below, exact)):
                ((mean, ends),) = [
                    value
                    for (x, color), value in drawn[axes].items()
                    if abs(x - place) < 0.5 and color == style.line
                ]
                np.testing.assert_allclose(mean, values.mean(), rtol=1e-6)
                np.testing.assert_allclose(ends, mean + values.std() * np.array([-1, 1]), rtol=1e-5)
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["8,000", "128,000"]
    assert below.get_xlabel() == "samples of the Zipf law"
    assert above.get_ylabel() == "results returned"
    assert "within 0.1" in below.get_ylabel()


def test_without_results_precision_is_one(tmp_path):
    store = rogers_store(tmp_path, (("zipf", 1),), trials=4)
    _, below = plots.returned(store).axes
    assert [bars[0].get_ydata()[0] for bars in below.containers] == [1, 1]


def test_results_by_share_of_the_budget(two):
    figure = plots.budget(two)
    for axes, size in zip(figure.axes, SIZES, strict=True):
        for method, style in zip(("brownian", "doubling"), STYLES, strict=False):
            values = np.sort(read(two, size, method, "returned_by"), axis=0)
            (line,) = [line for line in axes.lines if line.get_color() == style.line]
            np.testing.assert_allclose(line.get_xdata(), np.arange(MARKS + 1) / MARKS)
            np.testing.assert_allclose(line.get_ydata(), [0, *values.mean(axis=0)], rtol=1e-6)
            (band,) = [
                one
                for one in axes.collections
                if isinstance(one, PolyCollection)
                and np.allclose(one.get_facecolor()[0, :3], matplotlib.colors.to_rgb(style.line))
            ]
            points = band.get_paths()[0].vertices
            last = points[points[:, 0] == 1, 1]
            assert (last.min(), last.max()) == (values[1, -1], values[28, -1])
        assert axes.get_xlabel() == "share of the budget spent"
        assert axes.get_title().startswith(f"zipf {size:,} samples\n")
    assert figure.axes[0].get_ylabel() == "mean results returned by then"


def test_looks_differ_by_method_and_by_filter(tmp_path):
    options = {"methods": ("brownian", "laplace"), "filters": ("gaussian", "renyi")}
    store = rogers_store(tmp_path, (("zipf", 8000),), **options)
    figure = plots.returned(store)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:4] == [
        f"{method}, {title} filter"
        for method in ("brownian", "laplace")
        for title in ("Gaussian", "Rényi")
    ]
    looks = {
        (line.get_color(), line.get_marker(), line.get_fillstyle())
        for line in figure.legends[0].get_lines()[:4]
    }
    assert len(looks) == 4
    assert len({look[:2] for look in looks}) == 2


EXTREMES = {
    "one case": {"data": (("zipf", 8000),), "methods": ("doubling",)},
    "nothing": {"data": (("zipf", 1),)},
    "one trial": {"trials": 1},
    "everything": {
        "data": (
            ("zipf", 8000),
            ("a-much-longer-name-than-that.csv", None),
        ),
        "methods": ("brownian", "doubling", "laplace"),
        "filters": ("unified", "gaussian", "renyi"),
        "smallest": (1e-4, 1e-8),
    },
}


@pytest.mark.parametrize("which", EXTREMES)
def test_whatever_a_run_leaves_out_is_drawn_without_a_warning(tmp_path, monkeypatch, which):
    """And a margin of the picture's edge is blank: nothing is cut off."""
    store = rogers_store(tmp_path, **EXTREMES[which])
    drawn = []

    def keep(store, name, figure):
        picture = saved(figure)
        edges = (picture[:2], picture[-2:], picture[:, :2], picture[:, -2:])
        assert [bool((edge == 1).all()) for edge in edges] == [True] * 4, name
        drawn.append(name)
        return []

    monkeypatch.setattr("nrjax.plots.common.save", keep)
    plots.plot_rogers(store)
    assert drawn == list(FIGURES)


if __name__ == "__main__":  # to look at them: python -m tests.test_plots_rogers2023 FOLDER
    home = Path(sys.argv[1])
    every = {
        "two": {},
        "five": {"data": tuple(("zipf", 8000 * 2**n) for n in range(5))},
        "reddit": {
            "data": (("reddit", None),),
            "methods": ("brownian", "doubling", "laplace"),
            "filters": ("renyi",),
            "smallest": (1e-4, 1e-8),
        },
        **EXTREMES,
    }
    for name, options in every.items():
        print(*plots.plot_rogers(rogers_store(home / name.replace(" ", "-"), **options)), sep="\n")
