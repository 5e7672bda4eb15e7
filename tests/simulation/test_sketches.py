"""What is folded is what NumPy makes of the trials that were kept, however they were batched."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nrjax.simulation.folding import sketches
from nrjax.simulation.sketches import (
    BLOCK,
    MOMENTS,
    Fold,
    describe,
    described,
    merge_moments,
)

from nrjax.simulation import montecarlo
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.program import _on_devices
from tests.draws import SKETCH, Draws, expected

KEY = jax.random.key(5)
TRIALS = 3 * BLOCK + 11
ONE = montecarlo.Batching(tile=64, devices=tuple(jax.devices()[:1]))
EIGHT = montecarlo.Batching(tile=64)


@pytest.fixture(scope="module")
def kept():
    """All trials."""
    return montecarlo.sessions(Draws(0.7), TRIALS, ONE).run(KEY, TRIALS)


@pytest.fixture(scope="module")
def program():
    """Folds them on one device."""
    return sketches(montecarlo.sessions(Draws(0.7), TRIALS, ONE), SKETCH)


def counts_by_numpy(kept, prefix):
    """The packed counts of a group of variables."""

    def counts_of(column, fold):
        known, bins = column[~np.isnan(column)], []
        if fold.bins is not None:
            places = np.searchsorted(fold.bins.upper, known)
            bins = np.bincount(places, minlength=fold.bins.size)
            bins[-1] = np.isnan(column).sum()
        return np.concatenate([bins, [np.sum(known > threshold) for threshold in fold.thresholds]])

    values, folds = expected(kept), SKETCH.groups[prefix].folds
    found = [np.apply_along_axis(counts_of, 0, 1.0 * values[n], fold) for n, fold in folds.items()]
    return np.concatenate(found).T


def moments_of(values):
    """All trials at once."""
    values = np.asarray(values, float)
    some = np.where(np.isfinite(values), values, np.nan)
    mean = np.nanmean(some, axis=0)
    ends = np.nanmin(some, axis=0), np.nanmax(some, axis=0)
    kinds = (np.isposinf, np.isneginf, np.isnan)
    strange = [kind(values).sum(axis=0) for kind in kinds]
    squares = np.nansum((some - mean) ** 2, axis=0)
    return np.stack([np.isfinite(values).sum(axis=0), mean, squares, *ends, *strange], axis=-1)


def moments_by_numpy(kept, prefix):
    """The moments of a group of variables."""
    values = expected(kept)
    return np.stack([moments_of(values[name]) for name in SKETCH.groups[prefix].folds], axis=-2)


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
    missing = WholeBins(0, 3, missing=True).index(values)
    assert np.asarray(missing).tolist() == [6, 6, 6, 1, 4, 5, 5]
    with pytest.raises(ValueError, match="integer or boolean"):
        bins.index(jnp.array([0.5]))


def test_sketches_are_those_of_kept_trials(kept, program):
    found = program.run(KEY, TRIALS)
    exact = 1e-12 if jnp.result_type(float) == jnp.float64 else 3e-7
    for prefix in ("", "level_"):
        np.testing.assert_array_equal(found[f"{prefix}counts"], counts_by_numpy(kept, prefix))
        moments, right = found[f"{prefix}moments"], moments_by_numpy(kept, prefix)
        same = [place for place, name in enumerate(MOMENTS) if name not in ("mean", "squares")]
        np.testing.assert_array_equal(moments[..., same], right[..., same])
        np.testing.assert_allclose(moments, right, rtol=exact, atol=exact)
    # A trial more or less is noticed.
    fewer = {name: values[:-1] for name, values in kept.items()}
    assert (found["counts"] != counts_by_numpy(fewer, "")).any()


def test_planted_uncounted_mean_of_rounding_is_noticed(kept):
    """Of numbers far from zero, a float32 sum of squares says nothing of how they spread."""
    values = 1e4 + kept["utility"][~np.isnan(kept["utility"])].astype(np.float32)
    parts = [block.astype(np.float32) for block in np.array_split(values, 4)]
    naive = sum(np.sum(part**2, dtype=np.float32) for part in parts)
    naive -= values.size * np.mean(values, dtype=np.float64) ** 2
    right = np.sum((values - np.mean(values, dtype=np.float64)) ** 2, dtype=np.float64)
    assert abs(naive - right) > 0.01 * right
    rows = np.array([moments_of(part) for part in parts])
    np.testing.assert_allclose(merge_moments(rows)[2], right, rtol=1e-12)


def test_eight_devices_give_the_same_bits(program):
    eight = sketches(montecarlo.sessions(Draws(0.7), TRIALS, EIGHT), SKETCH)
    for given in ((TRIALS, 0), (1, 2**32 - 1)):
        one, other = program.run(KEY, *given), eight.run(KEY, *given)
        chex.assert_trees_all_equal(one, other, strict=True)


@pytest.mark.parametrize(
    "sizes", [(1, TRIALS - 1), (7, 255, 256, TRIALS - 518), (BLOCK, TRIALS - BLOCK)]
)
def test_chunks_merge_to_the_whole(program, sizes):
    whole = program.run(KEY, TRIALS)
    begins = [0, *itertools.accumulate(sizes)]
    parts = [program.run(KEY, size, at) for size, at in zip(sizes, begins, strict=False)]
    for order in (parts, parts[::-1]):
        for prefix in ("", "level_"):
            counts = sum(part[f"{prefix}counts"] for part in order)
            np.testing.assert_array_equal(counts, whole[f"{prefix}counts"])
            moments = merge_moments(np.stack([part[f"{prefix}moments"] for part in order]))
            np.testing.assert_allclose(moments, whole[f"{prefix}moments"], rtol=1e-6, atol=1e-7)


def test_merging_is_associative():
    rng = np.random.default_rng(1)
    values = [rng.normal(50.0, 1.0, size) for size in (3, 1, 200)]
    strange, nothing = np.array([0, 0, 0, 0, 0, 1, 2, 3]), [0, np.nan, 0, np.nan, np.nan, 1, 2, 3]
    one, two, last = (moments_of(part) + strange for part in values)
    parts = np.array([one, two, nothing, last])
    left = merge_moments(np.array([merge_moments(parts[:2]), merge_moments(parts[2:])]))
    right = merge_moments(np.array([parts[0], merge_moments(parts[1:])]))
    whole = moments_of(np.concatenate(values)) + 4 * strange
    for found in (left, right, merge_moments(parts)):
        np.testing.assert_allclose(found, whole, rtol=1e-13)
    np.testing.assert_array_equal(merge_moments(parts[2:3]), nothing)


def test_another_trial_and_thresholds_need_no_other_program(kept, program):
    program.run(KEY, TRIALS)
    before = _on_devices._cache_size()
    lower = dataclasses.replace(SKETCH.folds["utility"], thresholds=(2.0,))
    sketch = dataclasses.replace(SKETCH, folds={**SKETCH.folds, "utility": lower})
    found = sketches(montecarlo.sessions(Draws(0.0), TRIALS, ONE), sketch).run(KEY, TRIALS)
    assert _on_devices._cache_size() == before
    size = SKETCH.groups[""].size
    assert found["counts"][size - 1] == np.sum(kept["utility"] > 2.0)
    epsilon = found["moments"][0]
    assert epsilon[MOMENTS.index("smallest")] == epsilon[MOMENTS.index("largest")] == 1.0


def test_thresholds_are_not_rounded_up(dtype):
    near = dtype.type(0.1)
    between = float(near) * (1 + 1e-12)
    placed = Fold((0.1, between)).placed(dtype).thresholds
    assert placed.dtype == dtype
    values = np.array([np.nextafter(near, dtype.type(0)), near, np.nextafter(near, dtype.type(1))])
    for threshold, given in zip(placed, (0.1, between), strict=True):
        np.testing.assert_array_equal(values > threshold, values.astype(float) > given)


@pytest.mark.parametrize("kind", ["uint8", "uint32", "int32", "float16"])
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


def test_descriptions_are_complete():
    again = described(describe(SKETCH))
    assert describe(again) == describe(SKETCH)
    assert jax.tree.structure(again.folds) == jax.tree.structure(SKETCH.folds)
