"""Wrong settings of the papers' studies are refused by name, before any data are looked at."""

import importlib
import re

import numpy as np
import pytest

TWO = "the names of two groups"
WRONG = {
    "whitehouse2022": [
        ("levels = 1: must be at least 2", {"levels": 1}),
        ("curve_levels = 1001: must be at most levels = 1000", {"curve_levels": 1001}),
        ("delta = 1.5: must be strictly between 0 and 1", {"delta": 1.5}),
        ("tight_at = -1.0: must be positive", {"tight_at": -1.0}),
        ("lowest_epsilon = 70.0: must be between 0 and", {"lowest_epsilon": 70.0}),
        ("must be without repetition", {"mechanism": ("laplace", "laplace")}),
        ("mechanism = (): must be at least one value", {"mechanism": ()}),
        ("must be one value, or one for each of the tasks", {"data": ("flights",) * 3}),
    ],
    "ligett2017": [
        ("alpha = (0.1, 0.1): must be without repetition", {"alpha": (0.1, 0.1)}),
        ("alpha = -0.1: must be positive and finite", {"alpha": (-0.1,)}),
        ("alpha = (): must be at least one value", {"alpha": ()}),
        ("gamma = 1.0: must be strictly between 0 and 1", {"gamma": 1.0}),
        ("levels = 1: must be at least 2", {"levels": 1}),
        (
            "test_noise = 'exponential': must be laplace with the constants code",
            {"test_noise": "exponential", "constants": "code"},
        ),
        ("copies = 0: must be at least 1", {"copies": 0}),
        ("tight_at = 0.0: must be positive", {"tight_at": 0.0}),
        ("must be one value, or one for each of the tasks", {"data": ("a", "b", "c")}),
    ],
    "skellam_counts": [
        ("mechanism = (): must be at least one value", {"mechanism": ()}),
        ("must be without repetition", {"neighbour": ("remove", "remove")}),
        (f"groups = ('a',): must be {TWO}", {"groups": ("a",)}),
        (f"groups = ('a', 'a'): must be {TWO}", {"groups": ("a", "a")}),
        ("curve_levels = 101: must be at most levels = 100", {"curve_levels": 101}),
        ("delta = 0.0: must be strictly between 0 and 1", {"delta": 0.0}),
        ("relative_error = 0.0: must be positive", {"relative_error": 0.0}),
        ("below highest_deviation = 2", {"highest_deviation": 2.0, "lowest_deviation": 3.0}),
        ("target_loss = 1.0: must be below 1, a share of the groups", {"target_loss": 1.0}),
        ("target_loss = -1.0: must be 0 or more", {"target_loss": -1.0}),
        ("tight_at = nan: must be positive", {"tight_at": np.nan}),
    ],
    "rogers2023": [
        ("must be renyi with the method laplace", {"method": ("laplace",)}),
        ("must be renyi with", {"method": ("laplace",), "filter": ("renyi", "gaussian")}),
        ("must be renyi with the method discrete_laplace", {"method": ("discrete_laplace",)}),
        ("must be none for flights: only zipf", {"data": ("flights",), "samples": (8000,)}),
        ("samples = (8000, 8000): must be without repetition", {"samples": (8000, 8000)}),
        ("samples = 0: must be from 1 to 2^31", {"samples": (0,)}),
        ("alpha = 1.0: must be below 1", {"alpha": 1.0}),
        ("alpha = nan: must be positive and finite", {"alpha": np.nan}),
        ("epsilon = 0.0: must be positive and finite", {"epsilon": 0.0}),
        ("delta = 1.0: must be strictly between 0 and 1", {"delta": 1.0}),
        ("smallest = 0.0: must be positive and finite", {"smallest": (1e-4, 0.0)}),
        ("order = 3.0: must be None without the filter renyi", {"order": 3.0}),
        ("order = 1.0: must be finite and above 1", {"filter": ("renyi",), "order": 1.0}),
        ("levels = 1: must be at least 2", {"levels": 1}),
        ("top = 0: must be at least 1", {"top": 0}),
    ],
}


@pytest.mark.parametrize("paper", WRONG)
def test_wrong_settings_are_named(paper):
    settings = importlib.import_module(f"nrjax.papers.{paper}").Settings
    settings()  # none has to be given
    for message, changes in WRONG[paper]:
        with pytest.raises(ValueError, match=re.escape(message)):
            settings(**changes)
