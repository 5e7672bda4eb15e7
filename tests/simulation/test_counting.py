"""Trials are counted as NumPy counts the trials that are kept, however they are split."""

from fractions import Fraction

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.simulation import counting, moments, montecarlo
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.counting import HistogramSpec, Tally, merge
from nrjax.simulation.moments import MOMENTS, exact_sum, mean_and_variance, merge_moments
from tests.draws import GOAL, SPECS, Draws, expected

pytestmark = pytest.mark.bits

KEY = jax.random.key(5)
TRIALS = 779
ONE = montecarlo.Batching(tile=64, devices=tuple(jax.devices()[:1]))
TWO = montecarlo.Batching(tile=64, devices=tuple(jax.devices()[:2]))
EIGHT = montecarlo.Batching(tile=64)


@pytest.fixture(scope="module")
def kept():
    """All trials."""
    return montecarlo.custom_trials(Draws(0.7), TRIALS, ONE).run(KEY, TRIALS)


def tally(batching=ONE, specs=SPECS, chunk=TRIALS):
    program = montecarlo.custom_trials(Draws(0.7), chunk, batching)
    return Tally(**vars(program), specs=specs, goal=GOAL)


def counts_by_numpy(values, bins):
    """Counts by the upper edges of bins."""

    def counts_of(column):
        counts = np.bincount(
            np.searchsorted(bins.upper, column[~np.isnan(column)]), minlength=bins.size
        )
        counts[-1] = np.isnan(column).sum()
        return counts

    return np.apply_along_axis(counts_of, 0, 1.0 * values).T


def moments_by_numpy(values):
    """Moments of all trials at once, with the mean and the standard deviation for the sums."""
    values = np.asarray(values, float)
    finite = np.where(np.isfinite(values), values, np.nan)
    ends = np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)
    infinite = np.isposinf(values).sum(axis=0), np.isneginf(values).sum(axis=0)
    number = np.isfinite(values).sum(axis=0)
    spread = np.nanmean(finite, axis=0), np.nanvar(finite, axis=0)
    return np.stack([number, *spread, *ends, *infinite], axis=-1)


def summarised(moments):
    """Moments of one variable, with the mean and the variance in place of the sums."""
    rows = moments.reshape(-1, len(MOMENTS))
    short = [[row[0], *mean_and_variance(row), *row[-4:]] for row in rows]
    return np.reshape(short, (*moments.shape[:-1], 7))


def assert_counted(arrays, kept):
    """Counts are exact, and moments up to the rounding of NumPy's sums in float64."""
    for (name, spec), values in zip(SPECS, expected(kept).values(), strict=True):
        if spec.bins is not None:
            right = counts_by_numpy(values, spec.bins)
            np.testing.assert_array_equal(arrays[f"{name}_counts"], right, name)
        assert (f"{name}_counts" in arrays) == (spec.bins is not None)
        moments = summarised(arrays[f"{name}_moments"])
        np.testing.assert_allclose(moments, moments_by_numpy(values), 1e-11, 1e-11, err_msg=name)


def test_counts_are_those_of_kept_trials(kept):
    assert_counted(tally().run(KEY, TRIALS), kept)
    with pytest.raises(AssertionError, match="stopping_epsilon"):  # planted: one trial fewer
        assert_counted(tally().run(KEY, TRIALS), {name: x[:-1] for name, x in kept.items()})


def test_an_accelerator_counts_alike(kept, monkeypatch):
    """Its results stay there: they are counted by XLA, here on the CPU."""
    monkeypatch.setattr(counting, "_host_counts", lambda platform: False)
    found = tally(TWO).run(KEY, TRIALS)
    assert_counted(found, kept)
    monkeypatch.undo()
    chex.assert_trees_all_equal(found, tally().run(KEY, TRIALS))


@pytest.mark.parametrize(
    "batching",
    [pytest.param(ONE, id="one device"), pytest.param(EIGHT, id="eight", marks=pytest.mark.long)],
)
def test_counts_do_not_depend_on_devices_launches_and_order(kept, batching):
    program, parts, first = tally(batching), [], 0
    for size in (1, 7, 255, 500, 16):
        parts.append(program.run(KEY, size, first))
        first += size
    assert first == TRIALS
    whole = program.run(KEY, TRIALS)
    assert_counted(whole, kept)
    in_turn = tally(batching, chunk=100).run_all(KEY, TRIALS)
    for arrays in (in_turn, merge(parts), merge([merge(parts[3:]), merge(parts[:3])])):
        chex.assert_trees_all_equal(arrays, whole)
    chex.assert_trees_all_equal(program.run(KEY, 1, 2**32 - 1), tally().run(KEY, 1, 2**32 - 1))


def exact_sums(values):
    """The sums of numbers and of their squares, as fractions."""
    numbers = [Fraction(value) for value in values.tolist()]
    return sum(numbers), sum(number * number for number in numbers)


def sums_of_short_floats(values):
    """The same by `sums_with_squares`."""
    x = values.astype(float)
    found = moments.sums_with_squares(x, x.min(), x.max())
    return tuple(sum(map(Fraction, map(float, terms))) for terms in found)


FULL = np.float32(2) - np.float32(2**-23)
"""A number of 24 bits that are 1."""

SHORT_FLOATS = {
    "normal": np.random.default_rng(1).normal(size=3000),
    "positive": np.random.default_rng(2).uniform(0.1, 1.0, 3000),
    "negative": np.random.default_rng(3).uniform(-1.0, -0.1, 3000),
    "two pieces with a gap": np.array([FULL, FULL * 2.0**-14, 2.0**-20] * 1000),
    "of all magnitudes": 2.0 ** np.random.default_rng(4).uniform(-149, 127, 500),
    "smallest": np.full(1000, 2.0**-149),
    "largest": np.full(1000, np.finfo(np.float32).max),
    "zeros": np.zeros(3),
    "as many as fit, of 24 bits": np.full(2**16, FULL),
    "as many as fit, of 24 bits and far apart": np.tile([FULL, -FULL * 2.0**-30], 2**15),
}


@pytest.mark.parametrize("name", SHORT_FLOATS)
def test_sums_of_short_floats_are_exact(name):
    values = SHORT_FLOATS[name].astype(np.float32)
    assert sums_of_short_floats(values) == exact_sums(values)


def test_planted_pieces_that_are_too_long_for_exact_products(monkeypatch):
    values = np.random.default_rng(5).uniform(1.0, 2.0, 2**16).astype(np.float32)
    exact = exact_sums(values)
    assert sums_of_short_floats(values) == exact
    monkeypatch.setattr(moments, "_HALF", 24)
    assert sums_of_short_floats(values) != exact


@pytest.mark.parametrize("values", [[2, 5, 5, -1], [4], [], [2, 7], [-9, 3]])
def test_moments_of_whole_numbers_follow_from_their_counts(values):
    """Unless a number lies beyond the bins, as in the last two rows."""
    values, bins = np.array(values, np.int32), WholeBins(-1, 6)
    spec, index = HistogramSpec("x", bins), np.asarray(bins.index(values))
    everything = np.full(len(values), True)
    counts, found = counting.count(values, index, everything, spec)
    assert counts.sum() == len(values)
    np.testing.assert_array_equal(found, moments_of(values))
    if len(values):
        some = np.arange(len(values)) > 0
        found = counting.count(values, index, some, spec)[1]
        np.testing.assert_array_equal(found, moments_of(values[some]))


def moments_of(values):
    spec = HistogramSpec("x", None, values.shape[1:] and ("level", *values.shape[1:]))
    return counting.count(values, None, np.full(len(values), True), spec)[1]


def test_moments_merge_whatever_the_parts():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(1e4, 1.0, 200), [np.inf, -np.inf, np.nan, 1e4, 1e-30]])
    whole = moments_of(values)
    np.testing.assert_allclose(summarised(whole), moments_by_numpy(values), rtol=1e-11)
    for cuts in ([3, 4, 200], [100], [0, 7, 202]):
        parts = np.array([moments_of(part) for part in np.split(rng.permutation(values), cuts)])
        np.testing.assert_array_equal(merge_moments(parts), whole)
        nested = np.array([merge_moments(parts[1:]), merge_moments(parts[:1])])
        np.testing.assert_array_equal(merge_moments(nested), whole)
    # The sign of zero, which an order of numbers may decide, is left out.
    assert not np.signbit(merge_moments(moments_of(np.array([-0.0]))[None])).any()
    # Planted: float64 sums of parts depend on the parts.
    sums = {
        np.sum([np.sum(part) for part in np.split(values[:200], cuts)])
        for cuts in ([3], [90], [7, 50], [120])
    }
    assert len(sums) > 1
    assert np.isnan(mean_and_variance(moments_of(values[200:203]))).all()


@pytest.mark.parametrize("exponents", [(-20, 20), (-140, 120), (-1070, 800), (900, 1000)])
def test_sums_are_exact(exponents):
    """Against fractions, for numbers up to 2^900. Larger sums are only finite."""
    rng = np.random.default_rng(2)
    values = np.ldexp(rng.uniform(-1, 1, (60, 2)), rng.integers(*exponents, (60, 2)))
    parts = exact_sum(values)
    if exponents[1] > 900:
        assert np.isfinite(parts).all()
        return
    for column, found in zip(values.T, parts.T, strict=True):
        exact = sum(map(Fraction, column.tolist()))
        assert found[0] == float(exact)
        assert abs(sum(map(Fraction, found.tolist())) - exact) <= Fraction(abs(found[0])) / 2**200


def test_a_large_number_rounds_no_other_sum():
    """Nor does a sum that is not a number become 0 in the next sum."""
    values = np.random.default_rng(4).normal(size=(60, 4))
    values[:3, 0], values[:2, 1] = [1e300, 1.0, np.inf], [np.inf, -np.inf]
    found = exact_sum(np.concatenate([exact_sum(values[:20]), exact_sum(values[20:])]))
    np.testing.assert_array_equal(found[:, 2:], exact_sum(values[:, 2:]))
    np.testing.assert_array_equal(found[0, :2], [np.inf, np.nan])
    assert np.any(np.sum(values[:, 2:], axis=0) != found[0, 2:])  # planted: rounded sums differ


def test_long_sums_are_cut(monkeypatch):
    monkeypatch.setattr(moments, "_ROWS", 8)
    values = np.random.default_rng(3).normal(size=(100, 3))
    cut = exact_sum(values)
    monkeypatch.undo()
    np.testing.assert_array_equal(cut, exact_sum(values))


def odd_values(bins, dtype):
    """Edges, their neighbours, and what is no ordinary number."""
    rng = np.random.default_rng(0)
    far, largest = dtype.type(np.inf), np.finfo(dtype).max
    with np.errstate(over="ignore"):
        edges = bins.upper.astype(dtype)
        near = [edges, np.nextafter(edges, -far), np.nextafter(edges, far)]
    some = np.exp(rng.normal(size=300) * 6).astype(dtype)
    strange = np.array([0.0, -0.0, np.finfo(dtype).tiny, np.inf, np.nan, largest], dtype)
    values = np.concatenate([*near, some, strange])
    return np.concatenate([values, -values])


def assert_binned(bins, values):
    """The bin of a value is the first whose upper edge is not below it."""
    right = np.searchsorted(bins.upper, values.astype(float))
    right[np.isnan(values)] = bins.size - 1
    np.testing.assert_array_equal(np.asarray(bins.index(jnp.asarray(values))), right)


BINS = (LogBins(-4, 6, 3), LogBins(-4, 6, 3, signed=True), LogBins(-126, 127, 0, signed=True))


@pytest.mark.parametrize("bins", BINS)
def test_bins_are_exact(bins, dtype):
    values = odd_values(bins, dtype)
    assert np.unique(bins.index(jnp.asarray(values))).size >= bins.size - 2
    assert_binned(bins, values)
    assert bins.upper.size == bins.lower.size == bins.size - 1
    edges = bins.upper[np.abs(bins.upper) < 2.0**128]
    edges = edges[np.abs(edges) > 2.0**-149]
    np.testing.assert_array_equal(edges.astype(dtype), edges)


def test_planted_bins_closed_below_are_noticed(dtype):
    class Wrong(LogBins):
        def index(self, values):
            return super().index(jnp.nextafter(values, jnp.inf))

    values = odd_values(BINS[0], dtype)
    with pytest.raises(AssertionError):
        assert_binned(Wrong(-4, 6, 3), values)


def test_bins_are_as_wide_as_stated():
    bins = LogBins.covering(0.16, 20.0, 8)
    inside = (bins.lower >= 0.16) & (bins.upper <= 20.0)
    width = (bins.upper - bins.lower)[inside] / bins.lower[inside]
    assert inside.sum() > 6 * 256
    assert width.max() <= bins.resolution == 2.0**-8
    assert np.isin([2.0**bins.lowest, 2.0**bins.highest], bins.upper).all()
    assert 2.0**bins.lowest <= 0.16 < 20.0 <= 2.0**bins.highest


def test_whole_bins():
    bins = WholeBins(-1, 3)
    values = jnp.array([-7, -2, -1, 0, 3, 4, 99])
    assert np.asarray(bins.index(values)).tolist() == [0, 0, 1, 2, 5, 6, 6]
    assert bins.upper.tolist() == [-2, -1, 0, 1, 2, 3, np.inf]
    with pytest.raises(ValueError, match="integer or boolean"):
        bins.index(jnp.array([0.5]))


@pytest.mark.parametrize("kind", ["uint32", "int32", "float16"])
def test_numbers_of_any_dtype_are_in_their_bins(kind):
    """Also those that float32 does not hold, and unsigned ones beyond int32."""
    bins = LogBins(0, 32, 7, signed=True)
    if kind == "float16":
        values = np.array([1.5, 1000.0, np.inf, -np.inf], kind)
    else:
        ends = np.iinfo(kind)
        known = [0, 1, 7, 2**24, 2**24 + 1, 2**31 - 1, ends.max, ends.max - 1, max(ends.min, -7)]
        values = np.array([one for one in known if one <= ends.max], kind)
        whole = WholeBins(0, 10)
        inside = np.asarray(whole.index(values))
        assert np.all(whole.lower[inside] <= values)
        assert np.all(values <= whole.upper[inside])
    found = np.asarray(bins.index(values))
    assert np.all((bins.lower[found] < values) | (values == -np.inf))
    assert np.all(values <= bins.upper[found])
