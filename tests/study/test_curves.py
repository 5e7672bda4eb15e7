"""Curves to a resolution in a study: both ways of keeping, taken up again, and known by it."""

import numpy as np
import pytest

pytest.importorskip("xarray")

import nrjax
from tests.problems import Distance
from tests.study import cheap
from tests.study.test_conformance import Killed, Then, assert_same_bits

RESOLUTION = 0.3
GRID = nrjax.Grid.geometric(cheap.BOUNDARY, 0.3, 20.0, 4)


class Near(Distance):
    """With bounds that are wider where the utility is lower; the utility is not in their middle."""

    def bounds(self, hypothesis):
        found = self.evaluate(hypothesis)
        return found * 1.1, found * 0.95


def study(resolution=RESOLUTION):
    trial = cheap.interaction(utility=Near(3.0), schedule=GRID)
    curve = nrjax.Curve(trial, {"utility": nrjax.Quantity()}, resolution=resolution)
    return cheap.study({"near": nrjax.Case(trial=trial, curves={"curve": curve})})


def run(folder, made=None, **options):
    options = {"trials": 60, "chunk": 16, "progress": False} | options
    return (made or study()).run(folder, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "run")


def test_middles_serve_where_bounds_are_close(whole, tmp_path):
    exact = run(tmp_path / "exact", study(None))["near/curve"]["utility"].values
    close = -0.15 * exact <= RESOLUTION
    assert 0.1 < close.mean() < 0.9
    found = whole["near/curve"]["utility"].values
    np.testing.assert_allclose(found, np.where(close, 1.025 * exact, exact), rtol=1e-6)


def test_taken_up_again_to_the_same_bits_and_not_with_another(whole, tmp_path):
    with pytest.raises(Killed):
        run(tmp_path / "run", progress=Then(6))  # in the curve's pass
    for other in (None, 0.2):
        with pytest.raises(ValueError, match="what is computed of near"):
            run(tmp_path / "run", study(other))
    assert_same_bits(run(tmp_path / "run").store, whole.store)


def test_both_ways_of_keeping_agree(whole, tmp_path):
    kept = whole.levels("near", "utility")
    for one, other in zip(
        run(tmp_path / "run", keep="summary").levels("near", "utility"), kept, strict=True
    ):
        assert one.trials == other.trials == 60
        assert one.mean == pytest.approx(other.mean, rel=1e-6)


def test_times_are_told_by_part(whole):
    spent = whole.store.seconds("near")
    assert 0 < spent["curves"] < spent["run"]
    told = whole.table().remarks[-1]
    rate = f"{60 / (spent['run'] - spent['curves']):,.0f} a second"
    assert f"({rate}), curves {spent['curves']:.2f} s; figures" in told
    assert told in (whole.folder / "report.md").read_text()
    # Told of again, from the results alone, the time of those figures is not known.
    assert "in this call" not in nrjax.Results.open(whole.folder).table().remarks[-1]
