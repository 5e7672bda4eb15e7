"""Wrong settings of the papers' studies are refused by name, with or without data."""

import importlib
import re

import numpy as np
import pytest

import nrjax
from tests.marks import long_except
from tests.papers.shared import ITEMS, counts_file, rows_file

TWO = "the names of two groups"
WRONG = {
    "whitehouse2022": [
        ("levels must be at least 2", {"levels": 1}),
        ("curve_levels must be at most levels = 1000", {"curve_levels": 1001}),
        ("delta must be strictly between 0 and 1", {"delta": 1.5}),
        ("tight_at must be positive", {"tight_at": -1.0}),
        ("lowest_epsilon must be between 0 and", {"lowest_epsilon": 70.0}),
        ("must be without repetition", {"mechanism": ("laplace", "laplace")}),
        ("mechanism must be at least one value", {"mechanism": ()}),
        ("must be one value, or one for each of the tasks", {"data": ("flights",) * 3}),
    ],
    "ligett2017": [
        ("alpha must be without repetition", {"alpha": (0.1, 0.1)}),
        ("alpha must be positive and finite", {"alpha": (-0.1,)}),
        ("alpha must be at least one value", {"alpha": ()}),
        ("gamma must be strictly between 0 and 1", {"gamma": 1.0}),
        ("levels must be at least 2", {"levels": 1}),
        (
            "test_noise must be laplace with the constants figures",
            {"test_noise": "exponential", "constants": "figures"},
        ),
        ("copies must be at least 1", {"copies": 0}),
        ("tight_at must be positive", {"tight_at": 0.0}),
        ("must be one value, or one for each of the tasks", {"data": ("a", "b", "c")}),
    ],
    "skellam_counts": [
        ("mechanism must be at least one value", {"mechanism": ()}),
        ("must be without repetition", {"neighbour": ("remove", "remove")}),
        (f"groups must be {TWO}", {"groups": ("a",)}),
        (f"groups must be {TWO}", {"groups": ("a", "a")}),
        ("curve_levels must be at most levels = 100", {"curve_levels": 101}),
        ("delta must be strictly between 0 and 1", {"delta": 0.0}),
        ("relative_error must be positive", {"relative_error": 0.0}),
        ("below highest_deviation = 2", {"highest_deviation": 2.0, "lowest_deviation": 3.0}),
        ("target_loss must be below 1, a share of the groups", {"target_loss": 1.0}),
        ("target_loss must be 0 or more", {"target_loss": -1.0}),
        ("tight_at must be positive", {"tight_at": np.nan}),
    ],
    "rogers2023": [
        ("must be renyi with the method laplace", {"method": ("laplace",)}),
        ("must be renyi with", {"method": ("laplace",), "filter": ("renyi", "gaussian")}),
        ("must be renyi with the method discrete_laplace", {"method": ("discrete_laplace",)}),
        (
            "samples must be empty for flights (got (8000,)). Only zipf",
            {"data": ("flights",), "samples": (8000,)},
        ),
        ("samples must be without repetition", {"samples": (8000, 8000)}),
        ("samples must be from 1 to 2^31", {"samples": (0,)}),
        ("alpha must be below 1", {"alpha": 1.0}),
        ("alpha must be positive and finite", {"alpha": np.nan}),
        ("epsilon must be positive and finite", {"epsilon": 0.0}),
        ("delta must be strictly between 0 and 1", {"delta": 1.0}),
        ("smallest must be positive and finite", {"smallest": (1e-4, 0.0)}),
        ("order must be None without the filter renyi", {"order": 3.0}),
        ("order must be finite and above 1", {"filter": ("renyi",), "order": 1.0}),
        ("levels must be at least 2", {"levels": 1}),
        ("top must be at least 1", {"top": 0}),
    ],
    "tuning": [
        ("gain must be strictly between 0 and 1", {"gain": (0.5, 1.0)}),
        ("lowest_epsilon must be below highest_epsilon = 20", {"lowest_epsilon": 30.0}),
        ("stop must be strictly between 0 and 1", {"stop": 0.0}),
        ("features must be without repetition", {"features": ("", "")}),
    ],
}


@pytest.mark.parametrize("paper", WRONG)
def test_wrong_settings_are_named(paper):
    settings = importlib.import_module(f"nrjax.papers.{paper}").Settings
    settings()  # all have defaults
    for message, changes in WRONG[paper]:
        with pytest.raises(ValueError, match=re.escape(message)):
            settings(**changes)


CHOSEN = {
    "whitehouse2022": {"tight_at": 2.0, "highest_epsilon": 60.0},
    "ligett2017": {"alpha": (0.1,), "levels": 20},
    "skellam_counts": {"highest_deviation": 20.0, "lowest_deviation": 1.0},
    "rogers2023": {"epsilon": 1.0, "selection": 0.02},
}
UNFIT = {
    "whitehouse2022": [
        ("target_loss must be above 0.", {"target_loss": (0.01,)}),
        ("lowest_epsilon must be above 0.966", {"lowest_epsilon": 0.9}),
        ("target must be an array", {"target": None}),
    ],
    "ligett2017": [("alpha must be such that 4 times", {"alpha": (1e9,)})],
    "skellam_counts": [
        ("groups must be the names of two groups of own.csv", {"groups": ("a", "z")}),
        ("highest_deviation must be at most 57", {"highest_deviation": 1e5}),
        (
            "highest_deviation must be at most 1448 for discrete Laplace noise",
            {"highest_deviation": 2e3, "mechanism": ("discrete_laplace",)},
        ),
        ("so small that the largest count, 60, stays exact", {"highest_deviation": 1e9}),
        ("highest_deviation must be above", {"relative_error": 0.01, "highest_deviation": None}),
        ("data must be", {"data": "nothing"}),
    ],
    "rogers2023": [
        ("selection must be small enough for one selection and one", {"selection": 1.0}),
        ("selection must be small .* at smallest = 1 .* a larger --epsilon", {"smallest": (1.0,)}),
        ("must be from 1 to 8", {"top": 9}),
        ("data must be zipf, flights, reddit, or the path", {"data": ("nothing",)}),
        ("data must be files of different names", {"data": ("a/own.csv", "b/own.csv")}),
    ],
}


@pytest.mark.parametrize("paper", UNFIT)
def test_settings_that_do_not_fit_the_data_are_named(paper, tmp_path, monkeypatch):
    counts_study = importlib.import_module("nrjax.papers.skellam_counts.study")
    monkeypatch.setattr(counts_study, "largest_count", lambda dtype: 2.0**24)
    monkeypatch.setattr(nrjax.DiscreteLaplace, "largest_time", lambda self, dtype: 2.0**10)
    rows, counts = rows_file(tmp_path / "own.npz"), counts_file(tmp_path / "own.csv", ITEMS)
    own = {"data": str(counts) if paper == "skellam_counts" else (str(counts),)}
    if paper in ("whitehouse2022", "ligett2017"):
        own = {"data": (str(rows),), "task": ("logistic",), "target": "late"}
    module = importlib.import_module(f"nrjax.papers.{paper}")
    for message, changes in UNFIT[paper]:
        with pytest.raises(ValueError, match=message):
            module.study(module.Settings(**own | CHOSEN[paper] | changes))


@pytest.mark.parametrize("paper", long_except(UNFIT, "whitehouse2022", "skellam_counts"))
def test_cases_have_the_remarks_on_their_data(paper, tmp_path):
    """The remarks are on the way in which the table was read, or a custom header."""
    table = tmp_path / "own.csv"
    if paper in ("whitehouse2022", "ligett2017"):
        rows = (f"{1e5 + n},{n % 7},{'yes' if n % 3 else 'no'}\n" for n in range(50))
        table.write_text("income,rooms,owner\n" + "".join(rows))
        own = {"data": (str(table),), "task": ("logistic",), "target": "owner"}
        start = "Warning: columns of own.csv differ in scale by more than ten: 'income'"
    else:
        table.write_text("place,people\nx,300\ny,200\n")
        own = {"data": str(table) if paper == "skellam_counts" else (str(table),)}
        start = "own.csv: the groups are its column 'place'"
    module = importlib.import_module(f"nrjax.papers.{paper}")
    for case in module.study(module.Settings(**own | CHOSEN[paper])).cases.values():
        assert case.labels["remarks"][-1].startswith(start)
    if "task" in own:
        own["bounds"] = ("income=0:2e5", "rooms=0:10", "owner=yes,no")
        for case in module.study(module.Settings(**own | CHOSEN[paper])).cases.values():
            done, private = case.labels["remarks"][:2]
            assert "owner (yes is -1, no is 1) on income [0, 200000]" in done
            assert private.endswith(
                "Nothing was taken from the data but the counts in this summary."
            )
            assert case.labels["dimension"] == 3
