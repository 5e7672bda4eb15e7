"""Kept summaries say what kept trials say, up to the resolution that they state."""

import importlib
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray")
from nrjax.study.common import fill
from nrjax.study.variables import distribution_of, keeps_trials, levels_of, status_counts

from nrjax import montecarlo
from nrjax.bins import LogBins, WholeBins
from nrjax.keys import study_key
from nrjax.sketching import sketches
from nrjax.study.distribution import Sample
from nrjax.study.layout import Case, Coordinate, Pass, Variable
from nrjax.study.sketched import Sketched, sketch_pass
from nrjax.study.store import Store
from tests.draws import EPSILON, LEVELS, SKETCH, THRESHOLDS, Draws

TRIALS, CHUNK = 779, 500
PERCENTS = (0.01, 5, 25, 50, 75, 95, 100)
ONE = montecarlo.Batching(tile=64, devices=tuple(jax.devices()[:1]))


def moments_of(values):
    """As sketches have them."""
    finite = values[np.isfinite(values)]
    ends = (finite.min(), finite.max()) if finite.size else (np.nan, np.nan)
    mean = finite.mean() if finite.size else np.nan
    counts = (np.isposinf(values).sum(), np.isneginf(values).sum(), 0)
    found = (finite.size, mean, np.sum((finite - mean) ** 2), *ends, *counts)
    return np.array(found, float)


def folded(values, bins):
    """A sketch by NumPy."""
    counts = np.bincount(np.searchsorted(bins.upper, values), minlength=bins.size)
    return Sketched(bins, counts.astype(np.int64), moments_of(values))


def draws(number=2000, seed=0):
    """Of either sign, with zeros and infinities."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=number) * np.exp(rng.normal(size=number))
    values[:40], values[40:70], values[70:75] = 0.0, np.inf, -np.inf
    return values


SIGNED = LogBins(-8, 6, 5, signed=True)


def assert_within_resolution(sketched, values):
    """Quantiles are not below those of the values, and above by at most a bin."""
    exact = Sample(values)
    for percent in PERCENTS:
        right, found = exact.quantile(percent), sketched.quantile(percent)
        assert found >= right
        if np.isfinite(right) and abs(right) >= 2.0**-8:
            assert found - right <= sketched.resolution * abs(right)
        narrow, wide = exact.quantile_interval(percent), sketched.quantile_interval(percent)
        assert wide[0] <= narrow[0]
        assert narrow[1] <= wide[1]


def test_quantiles_are_within_the_resolution():
    values = draws()
    assert_within_resolution(folded(values, SIGNED), values)
    positive = np.abs(values)
    assert_within_resolution(folded(positive, LogBins(-8, 6, 5)), positive)


def test_planted_middles_of_bins_are_noticed():
    class Middle(Sketched):
        def order_statistic(self, rank):
            low, high = super().order_statistic(rank)
            middle = low if np.isinf(low) else (low + high) / 2
            return middle, middle

    values = draws()
    fair = folded(values, SIGNED)
    middle = Middle(SIGNED, np.append(fair._counts, 0), moments_of(values))
    with pytest.raises(AssertionError):
        assert_within_resolution(middle, values)


def test_counts_are_exact_at_edges():
    values = draws()
    sketched, exact = folded(values, SIGNED), Sample(values)
    edges = SIGNED.upper
    np.testing.assert_array_equal(sketched.count_above(edges), exact.count_above(edges))
    between = np.linspace(-5, 5, 1001)
    assert (sketched.count_above(between) >= exact.count_above(between)).all()
    ends = np.array([values[np.isfinite(values)].min(), values[np.isfinite(values)].max(), 1e30])
    np.testing.assert_array_equal(sketched.count_above(ends[1:]), exact.count_above(ends[1:]))
    points = sketched.points(50)
    assert 40 <= points.size <= 60
    assert (np.diff(points) > 0).all()
    np.testing.assert_array_equal(sketched.below(points), exact.below(points))
    assert sketched.points()[-1] == ends[1]
    assert sketched.band() == exact.band()
    assert sketched.fraction_above_interval(0.5) == exact.fraction_above_interval(0.5)
    for x in between[::50]:
        (low, high), right = (one.fraction_above_interval(x) for one in (sketched, exact))
        assert low <= right[0] < right[1] <= high


def test_moments_and_infinite_values():
    values = draws()
    assert np.isnan(folded(values, SIGNED).mean)
    above = values[values > -np.inf]
    assert folded(above, SIGNED).mean == folded(above, SIGNED).std == np.inf
    finite = values[np.isfinite(values)]
    sketched, exact = folded(finite, SIGNED), Sample(finite)
    for name in ("mean", "std", "standard_error", "trials"):
        assert getattr(sketched, name) == pytest.approx(getattr(exact, name), rel=1e-12)
    assert sketched.mean_interval() == pytest.approx(exact.mean_interval())
    none = folded(finite[:0], SIGNED)
    assert none.trials == none.points().size == 0
    assert np.isnan([none.mean, none.std, none.quantile(50)]).all()
    only_infinite = folded(values[40:70], SIGNED)
    assert only_infinite.quantile(50) == np.inf
    assert only_infinite.points().size == 0


def test_whole_numbers_are_known_exactly():
    values = np.random.default_rng(2).integers(-1, 12, 500).astype(float)
    sketched, exact = folded(values, WholeBins(-1, 12)), Sample(values)
    assert sketched.resolution == 0
    for percent in PERCENTS:
        assert sketched.quantile(percent) == exact.quantile(percent)
        assert sketched.quantile_interval(percent) == exact.quantile_interval(percent)
    inside = np.arange(-3, 14, 0.5)
    np.testing.assert_array_equal(sketched.count_above(inside), exact.count_above(inside))
    assert sketched.fraction_above_interval(3.5) == exact.fraction_above_interval(3.5)


@pytest.mark.parametrize("bins", [SIGNED, LogBins(-8, 6, 5)])
def test_coarser_bins_are_unions(bins):
    values = draws() if bins.signed else np.abs(draws())
    coarse = LogBins(bins.lowest, bins.highest, 2, bins.signed)
    assert np.isin(coarse.upper, bins.upper).all()
    found = folded(values, bins).coarser(2)
    np.testing.assert_array_equal(found._counts, folded(values, coarse)._counts)
    with pytest.raises(ValueError, match="digits"):
        found.coarser(3)


def test_only_moments():
    sketched = Sketched(None, np.zeros(0, int), moments_of(draws()[100:]))
    assert np.isfinite(sketched.mean_interval()).all()
    with pytest.raises(ValueError, match="only moments"):
        sketched.quantile(50)
    with pytest.raises(ValueError, match="values of the moments"):
        Sketched(SIGNED, np.zeros(SIGNED.size, int), moments_of(draws()))


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same trials twice: kept, and folded into two chunks, the second of which is short."""
    kept, dtype = montecarlo.sessions(Draws(0.7), TRIALS, ONE), str(jnp.result_type(float))
    whole = {name: "int32" for name in ("step", "status")}
    variables = {name: Variable(whole.get(name, dtype)) for name in ("epsilon", "utility", *whole)}
    level = {"loss": Variable(dtype, (("level", LEVELS),))}
    along = {"noise": Coordinate("level", (1.0, 2.0, 3.0))}
    passes = {
        "trials": Pass(TRIALS, TRIALS, variables | level, along),
        "summary": sketch_pass(TRIALS, CHUNK, SKETCH, along),
    }
    programs = {"trials": kept, "summary": sketches(kept, SKETCH, CHUNK)}
    found = {}
    for keep, layout in passes.items():
        case = Case("draws", {}, {"outcome": layout})
        store = Store.create(tmp_path_factory.mktemp(keep) / "out", {}, [case])
        fill(store, study_key(0), {"draws": {"outcome": programs[keep]}})
        found[keep] = store
    return found


def test_stores_tell_what_they_keep(stores):
    assert keeps_trials(stores["trials"], "draws")
    assert not keeps_trials(stores["summary"], "draws")
    counts = stores["summary"].read("draws", "outcome")["counts"]
    assert counts.dims == ("chunk", "bin")
    assert counts.shape == (2, SKETCH.groups[""].size)
    assert stores["summary"].read("draws", "outcome")["noise"].values.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("variable", ["epsilon", "stopped_epsilon", "step", "stopped_step"])
def test_distributions_from_either_store(stores, variable):
    one, two = (distribution_of(stores[keep], "draws", variable) for keep in ("trials", "summary"))
    assert one is not None
    assert two is not None
    if variable == "stopped_step":  # where a step of -1 is left out
        one = Sample(one._ordered[one._ordered >= 0])  # pyright: ignore[reportAttributeAccessIssue]
    assert one.trials == two.trials
    assert two.mean == pytest.approx(one.mean, rel=1e-6)
    assert two.finite == one.finite
    width = {"epsilon": EPSILON.resolution}.get(variable.removeprefix("stopped_"), 0.0)
    assert two.resolution == width
    for percent in PERCENTS:
        assert two.quantile(percent) >= one.quantile(percent)
        assert two.quantile(percent) == pytest.approx(one.quantile(percent), rel=1.001 * width)
    if variable == "epsilon":
        for threshold in THRESHOLDS:
            exact = one.count_above(threshold)
            assert two.count_above(threshold) == exact
            assert two.fraction_above_interval(threshold) == one.fraction_above_interval(threshold)


def test_levels_and_statuses_from_either_store(stores):
    assert status_counts(stores["trials"], "draws") == status_counts(stores["summary"], "draws")
    kept, short = (
        levels_of(stores[keep], "draws", "loss", name="outcome") for keep in ("trials", "summary")
    )
    assert len(short) == LEVELS
    for one, two in zip(kept, short, strict=True):
        edges = LogBins(-6, 3, 5, signed=True).upper
        np.testing.assert_array_equal(two.count_above(edges), one.count_above(edges))
    assert distribution_of(stores["summary"], "draws", "nothing") is None


KEEP = ("trials", "summary")
STUDIES = {
    "whitehouse2022": {
        "task": ("logistic",),
        "mechanism": ("brownian",),
        "test": ("above_threshold",),
        "rows": 300,
        "levels": 100,
        "curve_levels": 5,
    },
    "ligett2017": {
        "task": ("logistic",),
        "method": ("noise_reduction", "doubling"),
        "alpha": (0.1, 0.2),
        "rows": 2000,
        "levels": 50,
    },
    "skellam_counts": {"neighbour": ("remove",), "levels": 30, "curve_levels": 4, "delta": 1e-2},
    "rogers2023": {"samples": (8000,), "levels": 30},
}


def differences(one, two, path=""):
    """Numbers that are farther apart than the bins are wide, and all else that differs."""
    if isinstance(one, dict) and isinstance(two, dict):
        for name in one.keys() | two.keys():
            if name not in ("seconds", "settings", "resolution", "comparisons", "findings"):
                yield from differences(one.get(name), two.get(name), f"{path}/{name}")
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for place, pair in enumerate(zip(one, two, strict=True)):
            yield from differences(*pair, f"{path}[{place}]")
    elif isinstance(one, float) and isinstance(two, float | int):
        if not math.isclose(one, two, rel_tol=0.02, abs_tol=1e-3):
            yield f"{path}: {one} and {two}"
    elif one != two:
        yield f"{path}: {one} and {two}"


def assert_epsilon_within_resolution(one, two):
    """Of a case whose trials were kept, and folded: rounded up, by at most what is stated."""
    if not isinstance(one.get("epsilon"), dict):  # of rogers2023 it is the budget
        return
    for name in ("epsilon", "stopped_epsilon"):
        for quantile in ("q05", "q25", "q50", "q75", "q95"):
            right, found = one[name][quantile], two[name][quantile]
            if right is None:
                assert found is None
            else:
                assert right <= found <= right * (1 + two["resolution"])
    for name, (low, high) in one["epsilon_interval"].items():
        ends = two["epsilon_interval"][name]
        if None in (low, high, *ends):
            assert ends[1] is None or high is not None
        elif name == "mean":
            assert ends == pytest.approx([low, high], rel=1e-5)
        else:
            assert ends[0] <= low <= high <= ends[1]
    assert two["step"] == pytest.approx(one["step"], rel=1e-6)
    assert (two["status"], two["band"]) == (one["status"], one["band"])


@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_whole_studies_say_the_same(name, tmp_path):
    pytest.importorskip("matplotlib")
    study = importlib.import_module(f"nrjax.study.{name}")
    found = []
    for keep in KEEP:
        out = tmp_path / keep
        study.run(study.Settings(out=out, trials=700, keep=keep, **STUDIES[name]))
        found.append(json.loads((out / "summary.json").read_bytes()))
        assert "summar" in (out / "report.md").read_text() or keep == "trials"
    figures = [{path.stem for path in (tmp_path / keep / "figures").glob("*.png")} for keep in KEEP]
    # Trials of two methods cannot be paired.
    assert figures[0] - figures[1] == ({"cheapest"} if name == "ligett2017" else set())
    assert figures[1] <= figures[0]
    assert len(found[0]["cases"]) == len(found[1]["cases"])
    for one, two in zip(*(summary["cases"] for summary in found), strict=True):
        assert_epsilon_within_resolution(one, two)
    # Distances between quartiles may be off by two bins of what they are the difference of.
    apart = [line for line in differences(*found) if "quartile_distance" not in line]
    assert not apart
