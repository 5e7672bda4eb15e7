"""Summaries agree with kept trials up to the stated resolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray")

import nrjax
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.counting import Tally
from nrjax.simulation.program import Program
from nrjax.study import local
from nrjax.study.histograms import EPSILON_BINS
from nrjax.study.store import Store
from tests.problems import Distance
from tests.study import cheap, small
from tests.study.binned import FRACTIONS, assert_alike, assert_quantities_alike, binned
from tests.study.interrupted import Killed, Then

KEEP = ("trials", "summary")
RESOLUTION = 0.3
SIGNED = LogBins(-8, 6, 5, signed=True)

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
    "exact": nrjax.Quantity(lambda path: -jnp.abs(path.hypothesis - 3)),
    "epsilon": nrjax.Quantity(bins=LogBins(-6, 5, 12)),  # an outcome has one, too
    "status": nrjax.Quantity(),
}


class Near(Distance):
    """A utility whose bounds are wider if it is lower, and not symmetric around it."""

    def bounds(self, hypothesis, *, rounding=True):
        found = self.evaluate(hypothesis)
        return found * 1.1, found * 0.95


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of the same trials: kept, and counted in two files, of which one is short."""
    along = {"level": range(12)}
    curve = nrjax.Curve(cheap.interaction(utility=Near(3.0)), LEVELS, along, RESOLUTION)
    tested = nrjax.Case(
        trial=cheap.interaction(rule=nrjax.AboveThreshold(-0.5, 0.1, 1.0), shift=1.0),
        quantities=QUANTITIES,
        coordinates={"sign": ("side", (-1.0, 1.0))},
        curves={"curve": curve},
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


@pytest.mark.long
def test_distributions_and_statuses_from_either(results):
    kept, short = (results[keep] for keep in KEEP)
    assert assert_quantities_alike(kept, short) > 20
    for quantity, histogram in short.histograms("tested").items():
        if histogram.dim is None and histogram.bins is not None:
            values = kept.values("tested", quantity)
            again = binned(values[~np.isnan(values)], histogram.bins)
            np.testing.assert_array_equal(histogram.counts[:-1], np.diff(again._bins[2], prepend=0))
    assert kept.distribution("tested", "stopped_utility").trials > 300
    for quantity in ("step", "whole", "few", "high"):  # each number has a bin of its own
        one, two = (each.distribution("tested", quantity) for each in (kept, short))
        assert [one.quantile(p) for p in FRACTIONS] == [two.quantile(p) for p in FRACTIONS]
    one, two = (each.distribution("tested", "moments") for each in (kept, short))
    assert (two.mean, two.std) == pytest.approx((one.mean, one.std), rel=1e-5)


def test_levels_from_either(results):
    for case, name, one, size in (
        ("tested", "utility", "curve", 12),
        ("tested", "epsilon", "curve", 12),
        ("tested", "sides", "outcome", 2),
        ("walk", "path", "outcome", 4),
    ):
        columns = [results[keep].levels(case, name, one) for keep in KEEP]
        assert len(columns[0]) == size
        for pair in zip(*columns, strict=True):
            assert_alike(*pair)
    for keep in KEEP:
        epsilon = [one.quantile(0.5) for one in results[keep].levels("tested", "epsilon")[:2]]
        assert epsilon == pytest.approx([0.3, 0.3 * (20 / 0.3) ** (1 / 11)], rel=1e-3)
        with pytest.raises(ValueError, match="quantity must be one number per trial"):
            results[keep].distribution("tested", "epsilon", "curve")


def test_what_is_kept_has_its_axes_dtypes_and_units(results):
    kept, short = results["trials"]["tested"], results["summary"]["tested"]
    assert (kept["whole"].dtype, kept["high"].dtype) == (np.int32, bool)
    assert kept["distance"].attrs["units"] == "m"
    assert dict(kept["sides"].sizes) == {"trial": 779, "side": 2}
    for dataset in (kept, short):
        assert dataset["sign"].values.tolist() == [-1, 1]
    assert short["status_counts"].dims == ("chunk", "status_bin")
    assert short["sides_moments"].dims == ("chunk", "side", "moment")
    assert short["chunk"].values.tolist() == [0, 500]  # first trials of the files
    curve = results["trials"]["tested/curve"]
    assert curve["utility"].dims == ("trial", "level")
    assert set(curve) == set(LEVELS)
    # Middles serve where bounds are close.
    close = -0.15 * curve["exact"] <= RESOLUTION
    assert 0.1 < close.mean() < 0.9
    served = curve["exact"].where(~close, 1.025 * curve["exact"])
    np.testing.assert_allclose(curve["utility"], served, rtol=1e-5)


def test_times_are_told_by_part(results):
    kept = results["trials"]
    each = [kept.store.seconds(name) for name in kept]
    curves = each[0]["curves"]
    assert 0 < curves < each[0]["run"]
    rate = 3 * 779 / (sum(one["run"] for one in each) - curves)
    told = kept.table().provenance[-1]
    assert f"({rate:,.0f} per second), {curves:.2f} s for curves; " in told
    assert "s for figures in this call" in told
    assert told in (kept.folder / "report.md").read_text()
    # Told of again, from the results alone, the time of those figures is not known.
    assert "in this call" not in nrjax.Results.open(kept.folder).table().provenance[-1]


def assert_epsilon_within_resolution(one, two):
    """Check that summaries round epsilons up, by at most the stated resolution."""
    if one.get("stopping_epsilon") is None:
        return
    for name in ("stopping_epsilon", "stopped_epsilon"):
        for quantile in ("q05", "q25", "q50", "q75", "q90", "q95"):
            right, found = one[name][quantile], two[name][quantile]
            if right is None:
                assert found is None
            else:
                assert right <= found <= right * (1 + two["resolution"])
    for name, (low, high) in one["stopping_epsilon_interval"].items():
        ends = two["stopping_epsilon_interval"][name]
        if None in (low, high, *ends):
            assert ends[1] is None or high is not None
        elif name == "mean":
            assert ends == pytest.approx([low, high], rel=1e-5)
        else:
            assert ends[0] <= low <= high <= ends[1]
    assert two["step"] == pytest.approx(one["step"], rel=1e-6)
    assert (two["status"], two["band"]) == (one["status"], one["band"])


def test_summaries_from_either(results):
    found = [results[keep].summary()["cases"] for keep in KEEP]
    for one, two in zip(*found, strict=True):
        assert_epsilon_within_resolution(one, two)
        assert one.get("met") == two.get("met")
    tested, free, walk = found[0]
    assert tested["goal"] == -0.5
    assert 0.2 < tested["shortfall"]["share"] < 0.8
    assert tested["shortfall"] == pytest.approx(found[1][0]["shortfall"], rel=0.01)
    # Thresholds of each step are no goal; a custom trial has no epsilon.
    assert not {"goal", "met", "shortfall"} & set(free)
    assert free["stopping_epsilon"] is None
    assert set(walk) == {"case", "trials", "seconds"}
    for keep in KEEP:
        assert results[keep].distribution("free") is None
        for case, name in (("free", "shortfall"), ("tested", "nothing")):
            with pytest.raises(ValueError, match="quantity must be one of"):
                results[keep].distribution(case, name)
    assert found[0] != found[1]  # the resolution, at least


def test_what_needs_trials_is_refused_or_left_out(results):
    short = results["summary"]
    assert [results[keep].keeps_trials("walk") for keep in KEEP] == [True, False]
    with pytest.raises(ValueError, match="trials must be kept"):
        short.values("tested")
    assert "Only summaries were kept" in " ".join(short.table().remarks)
    assert "summar" not in " ".join(results["trials"].table().remarks)
    kept, other = (results[keep].compare("tested", "free", "step") for keep in KEEP)
    assert kept.smaller is not None
    assert (other.smaller, other.larger, other.difference, other.median_interval) == (None,) * 4
    assert (other.medians, other.dominance, other.met) == (kept.medians, kept.dominance, kept.met)


class Slow:
    """A clock by which a trial takes a second, or a millionth of one."""

    def __init__(self, seconds):
        self.now, self.seconds, self.launches = 0.0, seconds, []

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize(
    ("seconds", "trials", "files"),
    [
        pytest.param(1.0, 40, 10, id="slow", marks=pytest.mark.long),
        pytest.param(1e-6, 40_000, 1, id="fast"),
    ],
)
def test_a_kill_costs_seconds_of_work(tmp_path, monkeypatch, seconds, trials, files):
    """Launches and files are cut by seconds, of a slow study too, and a resumed run adds up."""
    clock, launch, collect = Slow(seconds), Program.launch, Tally.collect

    def launched(self, key, trials, first):
        clock.launches.append(trials)
        return launch(self, key, trials, first)

    def timed(self, launch):
        clock.now += seconds * int(launch.counts.sum())
        return collect(self, launch)

    monkeypatch.setattr(Program, "launch", launched)
    monkeypatch.setattr(Tally, "collect", timed)
    monkeypatch.setattr(Program, "batch", 1)
    monkeypatch.setattr(local, "time", clock)
    one = nrjax.Batching(devices=jax.devices()[:1])  # each device counts each launch
    study = cheap.study({"walk": nrjax.Case(trial=cheap.Walk(np.float32(6)), batching=one)})
    options = {"trials": trials, "keep": "summary"}
    with pytest.raises(Killed):
        study.run(tmp_path / "run", progress=Then(6), **options)
    done = sum(map(len, Store.open(tmp_path / "run").done("walk", "outcome")))
    lost = sum(clock.launches) - done
    assert seconds * lost <= local.FILE_SECONDS + 2 * local.LAUNCH_SECONDS
    results = study.run(tmp_path / "run", progress=False, **options)
    assert sum(clock.launches) == trials + lost
    assert len(results.store.done("walk", "outcome")) == files
    assert sum(file.stat().st_size for file in results.folder.rglob("*.npz")) < 600_000
    whole = study.run(tmp_path / "whole", progress=False, chunk=trials, **options)
    for case in whole:
        for name, histogram in whole.histograms(case).items():
            other = results.histograms(case)[name]
            np.testing.assert_array_equal(other.counts, histogram.counts)
            np.testing.assert_array_equal(other.moments, histogram.moments)


def test_bins_of_epsilon_are_fixed_and_fine(results):
    histogram = results["summary"].histograms("tested")["stopping_epsilon"]
    assert histogram.bins == EPSILON_BINS
    assert results["summary"].summary()["cases"][0]["resolution"] == 2.0**-12


@pytest.mark.long
@pytest.mark.parametrize("name", small.NAMES[1:])
def test_reports_and_figures_of_papers_from_either(name, tmp_path):
    """The distributions are compared in test_conformance.py."""
    small.data(tmp_path)
    study = small.study(name, tmp_path)
    ran = [study.run(tmp_path / keep, trials=300, keep=keep, progress=False) for keep in KEEP]
    assert "Only summaries were kept" in (tmp_path / "summary" / "report.md").read_text()
    figures = [{path.stem for path in (tmp_path / keep / "figures").glob("*.png")} for keep in KEEP]
    assert figures[1] <= figures[0]
    # Trials of two methods cannot be paired.
    lost = {"cheapest"} if name == "ligett2017" else {"paired_differences", "loss_against_stated"}
    assert figures[0] - figures[1] <= lost
    for one, two in zip(*(each.summary()["cases"] for each in ran), strict=True):
        assert_epsilon_within_resolution(one, two)
