"""Bounds and categories that no value of a column has draw a warning."""

import warnings

import pytest

from nrjax.datasets import from_frame

FRAME = {"age": [20, 30, 40], "city": ["Rome", "Pisa", "Rome"], "y": [1.0, 2.0, 3.0]}
BOUNDS = {"age": (0, 100), "city": ["Rome", "Pisa"], "y": (0, 5)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"age": (40.5, 90)}, r"no value of 'age' lies within its bounds \[40\.5, 90\]"),
        ({"y": (4, 5)}, r"no value of 'y' lies within its bounds \[4, 5\]"),
        ({"city": ["Roma", "Pise"]}, "no value of 'city' is one of its 2 categories"),
    ],
)
def test_a_column_without_a_value_within_its_bounds_draws_a_warning(changes, message):
    with pytest.warns(UserWarning, match=message):
        from_frame(FRAME, "y", bounds=BOUNDS | changes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_frame(FRAME, "y", bounds=BOUNDS | {"age": (20, 90)})
