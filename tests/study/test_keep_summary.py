"""Kept summaries say what kept trials say, up to the resolution that they state."""

import importlib
import math

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.sketches import Fold
from nrjax.study.distribution import Sample
from nrjax.study.settings import RunSettings
from nrjax.study.sketched import Sketched
from nrjax.study.study import begin
from tests.study import cheap

PERCENTS = (0.01, 5, 25, 50, 75, 95, 100)
KEEP = ("trials", "summary")


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
    return Sketched(Fold(bins=bins), counts.astype(np.int64), moments_of(values))


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
    middle = Middle(Fold(bins=SIGNED), np.append(fair._counts, 0), moments_of(values))
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


def test_only_moments():
    sketched = Sketched(Fold(), np.zeros(0, int), moments_of(draws()[100:]))
    assert np.isfinite(sketched.mean_interval()).all()
    with pytest.raises(ValueError, match="only moments"):
        sketched.quantile(50)
    with pytest.raises(ValueError, match="values of the moments"):
        Sketched(Fold(bins=SIGNED), np.zeros(SIGNED.size, int), moments_of(draws()))


QUANTITIES = {
    "distance": nrjax.Quantity(lambda outcome: jnp.abs(outcome.release - 3), units="m"),
    "moments": nrjax.Quantity(lambda outcome: outcome.release**2, bins=None),
    "whole": lambda outcome: jnp.round(10 * outcome.release).astype(jnp.int32),
    "few": nrjax.Quantity(lambda outcome: outcome.step % 4, WholeBins(0, 3)),
    "high": lambda outcome: outcome.release > 3,
    "sides": nrjax.Quantity(
        lambda outcome: jnp.stack([-outcome.release, outcome.release]), dims=("side",)
    ),
}
LEVELS = {
    "utility": nrjax.Quantity(bins=LogBins(-6, 10, 5, signed=True)),
    "epsilon": nrjax.Quantity(),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The same trials twice: kept, and folded into two chunks, the second of which is short."""
    tested = nrjax.Case(
        trial=cheap.interaction(rule=nrjax.AboveThreshold(-0.5, 0.1, 1.0), shift=1.0),
        quantities=QUANTITIES,
        coordinates={"sign": ("side", (-1.0, 1.0))},
        curves={"curve": nrjax.Curve(cheap.interaction(), LEVELS, {"level": range(12)})},
    )
    free = cheap.interaction(
        rule=nrjax.PublicThreshold(np.linspace(-0.1, -0.5, 12)), guarantee=None
    )
    study = cheap.study({"tested": tested, "free": free, "walk": cheap.Walk(np.float32(6))})
    home = tmp_path_factory.mktemp("results")
    return {
        keep: study.run(home / keep, trials=779, chunk=500, keep=keep, progress=False)
        for keep in KEEP
    }


def assert_alike(one, two):
    """Distributions of trials that were kept, and folded."""
    assert (one.trials, one.finite) == (two.trials, two.finite)
    assert two.mean == pytest.approx(one.mean, rel=1e-6, abs=1e-6, nan_ok=True)
    assert two.std == pytest.approx(one.std, rel=1e-5, nan_ok=True)
    for percent in PERCENTS if one.trials else ():
        right, found = one.quantile(percent), two.quantile(percent)
        assert found >= right
        assert found == pytest.approx(right, rel=1.001 * two.resolution, abs=1e-6)


SCALARS = ("step", "distance", "whole", "few", "high")
STOPPED = ("utility", "epsilon", "mechanism_epsilon", "test_epsilon", *SCALARS)


@pytest.mark.parametrize(
    "quantity",
    ["stopping_epsilon", "shortfall", "privacy_loss", *SCALARS, *(f"stopped_{n}" for n in STOPPED)],
)
def test_distributions_from_either(results, quantity):
    one, two = (results[keep].distribution("tested", quantity) for keep in KEEP)
    assert one.trials > 300
    assert_alike(one, two)


def test_whole_numbers_and_booleans_are_exact(results):
    assert results["trials"]["tested"]["whole"].dtype == np.int32
    assert results["trials"]["tested"]["high"].dtype == bool
    for name in ("step", "whole", "few", "high"):
        one, two = (results[keep].distribution("tested", name) for keep in KEEP)
        assert [one.quantile(p) for p in PERCENTS] == [two.quantile(p) for p in PERCENTS]


def test_levels_statuses_and_moments_from_either(results):
    kept, short = (results[keep] for keep in KEEP)
    for case in ("tested", "free", "walk"):
        assert kept.statuses(case) == short.statuses(case)
    assert kept.statuses("walk") is None
    places = [
        ("tested", "utility", "curve"),
        ("tested", "sides", "outcome"),
        ("walk", "path", "outcome"),
    ]
    for (case, name, one), size in zip(places, (12, 2, 4), strict=True):
        columns = [each.levels(case, name, one) for each in (kept, short)]
        assert len(columns[0]) == size
        for pair in zip(*columns, strict=True):
            assert_alike(*pair)
    for name in ("end", "rises", "high"):
        assert_alike(*(results[keep].distribution("walk", name) for keep in KEEP))
    one, two = (results[keep].distribution("tested", "moments") for keep in KEEP)
    assert (two.mean, two.std) == pytest.approx((one.mean, one.std), rel=1e-5)
    assert two.mean_interval() == pytest.approx(one.mean_interval(), rel=1e-5)


def test_what_is_kept_has_its_axes_and_units(results):
    kept, short = results["trials"]["tested"], results["summary"]["tested"]
    assert kept["distance"].attrs["units"] == "m"
    assert dict(kept["sides"].sizes) == {"trial": 779, "side": 2}
    for dataset in (kept, short):
        assert dataset["sign"].values.tolist() == [-1, 1]
    assert short["counts"].dims == ("chunk", "bin")
    assert short["side_moments"].sizes["chunk"] == 2
    curve = results["trials"]["tested/curve"]
    assert curve["utility"].dims == ("trial", "level")
    assert set(curve) == set(LEVELS)


def test_summaries_from_either(results):
    found = [results[keep].summary()["cases"] for keep in KEEP]
    for one, two in zip(*found, strict=True):
        assert_epsilon_within_resolution(one, two)
        assert one.get("met") == two.get("met")
    tested, free, walk = found[0]
    assert tested["goal"] == -0.5
    assert 0.2 < tested["shortfall"]["share"] < 0.8
    assert tested["shortfall"] == pytest.approx(found[1][0]["shortfall"], rel=0.01)
    # Thresholds of each step are no goal; a session has no epsilon.
    assert not {"goal", "met", "shortfall"} & set(free)
    assert free["epsilon"] is None
    assert set(walk) == {"case", "trials", "seconds"}
    for keep in KEEP:
        assert results[keep].distribution("free") is None
        with pytest.raises(ValueError, match="quantity = 'shortfall': must be one of"):
            results[keep].distribution("free", "shortfall")
        with pytest.raises(ValueError, match="quantity = 'nothing': must be one of"):
            results[keep].distribution("tested", "nothing")
    assert found[0] != found[1]  # the resolution, at least


def test_what_needs_trials_is_refused_or_left_out(results):
    short = results["summary"]
    assert [results[keep].keeps_trials("walk") for keep in KEEP] == [True, False]
    with pytest.raises(ValueError, match="trials = 'tested': must be kept: only summaries"):
        short.values("tested")
    assert short.resampled("tested") is None
    assert "only summaries were kept" in " ".join(short.table().remarks)
    assert "summar" not in " ".join(results["trials"].table().remarks)
    kept, other = (results[keep].compare("tested", "free", "step") for keep in KEEP)
    assert kept.smaller is not None
    assert (other.smaller, other.larger, other.difference, other.median_interval) == (None,) * 4
    assert (other.medians, other.dominance, other.met) == (kept.medians, kept.dominance, kept.met)


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
    paper = importlib.import_module(f"nrjax.papers.{name}")
    study = paper.study(paper.Settings(**STUDIES[name]))
    found = []
    for keep in KEEP:
        ran = begin(study, RunSettings(out=tmp_path / keep, trials=700, keep=keep))
        found.append(ran.summary())
        assert "summar" in (tmp_path / keep / "report.md").read_text() or keep == "trials"
    figures = [{path.stem for path in (tmp_path / keep / "figures").glob("*.png")} for keep in KEEP]
    # Trials of two methods cannot be paired.
    assert figures[0] - figures[1] == ({"cheapest"} if name == "ligett2017" else set())
    assert figures[1] <= figures[0]
    for one, two in zip(*(summary["cases"] for summary in found), strict=True):
        assert_epsilon_within_resolution(one, two)
    # Distances between quartiles may be off by two bins of what they are the difference of.
    apart = [line for line in differences(*found) if "quartile_distance" not in line]
    assert not apart
