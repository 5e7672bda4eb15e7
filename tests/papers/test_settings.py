"""Wrong settings of the papers' studies are refused by name, before any data are looked at."""

import importlib
import re

import numpy as np
import pytest

TWO = "the names of two groups"
WRONG = {
    "whitehouse2022": [
        ({"levels": 1}, "levels = 1: must be at least 2"),
        ({"levels": 60, "curve_levels": 61}, "curve_levels = 61: must be at most levels = 60"),
        ({"delta": 1.5}, "delta = 1.5: must be strictly between 0 and 1"),
        ({"tight_at": -1.0}, "tight_at = -1.0: must be positive"),
        ({"lowest_epsilon": 70.0}, "lowest_epsilon = 70.0: must be between 0 and"),
        ({"mechanism": ("laplace", "laplace")}, "must be without repetition"),
        ({"mechanism": ()}, "must be at least one value"),
        ({"data": ("flights",) * 3}, "must be one value, or one for each of the tasks"),
    ],
    "ligett2017": [
        ({"alpha": (0.1, 0.1)}, "alpha = (0.1, 0.1): must be without repetition"),
        ({"alpha": (-0.1,)}, "alpha = -0.1: must be positive and finite"),
        ({"alpha": ()}, "alpha = (): must be at least one value"),
        ({"gamma": 1.0}, "gamma = 1.0: must be strictly between 0 and 1"),
        ({"levels": 1}, "levels = 1: must be at least 2"),
        ({"copies": 0}, "copies = 0: must be at least 1"),
        ({"tight_at": 0.0}, "tight_at = 0.0: must be positive"),
        ({"data": ("a", "b", "c")}, "must be one value, or one for each of the tasks"),
    ],
    "skellam_counts": [
        ({"mechanism": ()}, "mechanism = (): must be at least one value"),
        ({"neighbour": ("remove", "remove")}, "must be without repetition"),
        ({"groups": ("a",)}, f"groups = ('a',): must be {TWO}"),
        ({"groups": ("a", "a")}, f"groups = ('a', 'a'): must be {TWO}"),
        ({"levels": 12, "curve_levels": 13}, "curve_levels = 13: must be at most levels = 12"),
        ({"delta": 0.0}, "delta = 0.0: must be strictly between 0 and 1"),
        ({"relative_error": 0.0}, "relative_error = 0.0: must be positive"),
        (
            {"highest_deviation": 20.0, "lowest_deviation": 30.0},
            "lowest_deviation = 30.0: must be below highest_deviation",
        ),
        ({"target_loss": 1.0}, "target_loss = 1.0: must be below 1, a share of the groups"),
        ({"target_loss": -1.0}, "target_loss = -1.0: must be 0 or more"),
        ({"tight_at": np.nan}, "tight_at = nan: must be positive"),
    ],
    "rogers2023": [
        ({"method": ("laplace",)}, "filter = 'unified': must be renyi with the method laplace"),
        (
            {"method": ("brownian", "laplace"), "filter": ("renyi", "gaussian")},
            "filter = 'gaussian': must be renyi",
        ),
        (
            {"data": ("flights",), "samples": (8000,)},
            "samples = (8000,): must be none for flights: only zipf",
        ),
        ({"samples": (8000, 8000)}, "samples = (8000, 8000): must be without repetition"),
        ({"samples": (0,)}, "samples = 0: must be from 1 to 2^31"),
        ({"alpha": 1.0}, "alpha = 1.0: must be below 1"),
        ({"alpha": np.nan}, "alpha = nan: must be positive and finite"),
        ({"epsilon": 0.0}, "epsilon = 0.0: must be positive and finite"),
        ({"delta": 1.0}, "delta = 1.0: must be strictly between 0 and 1"),
        ({"smallest": (1e-4, 0.0)}, "smallest = 0.0: must be positive and finite"),
        ({"order": 3.0}, "order = 3.0: must be None without the filter renyi"),
        ({"filter": ("renyi",), "order": 1.0}, "order = 1.0: must be finite and above 1"),
        ({"levels": 1}, "levels = 1: must be at least 2"),
        ({"top": 0}, "top = 0: must be at least 1"),
    ],
}


@pytest.mark.parametrize("paper", WRONG)
def test_wrong_settings_are_named(paper):
    settings = importlib.import_module(f"nrjax.papers.{paper}").Settings
    settings()  # none has to be given
    for changes, message in WRONG[paper]:
        with pytest.raises(ValueError, match=re.escape(message)):
            settings(**changes)
