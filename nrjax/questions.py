"""Questions about private data, for `nrjax.choose`: a value, its sensitivities, and an error.

By default neighbouring data sets differ in one row, by replacement, and numbers of rows are public.
Sums and counts also take the relation "add-remove", under which the number of rows is private. For
people with up to 3 rows write "replace, 3 rows" or "add-remove, 3 rows".
"""

from nrjax.choice.question import Custom, Question
from nrjax.choice.questions import (
    DELTA,
    count,
    counts,
    custom,
    distance,
    histogram,
    largest_error,
    largest_relative_error,
    linear_regression,
    logistic_regression,
    mean,
    sum,
    vector_mean,
)

__all__ = [
    "DELTA",
    "Custom",
    "Question",
    "count",
    "counts",
    "custom",
    "distance",
    "histogram",
    "largest_error",
    "largest_relative_error",
    "linear_regression",
    "logistic_regression",
    "mean",
    "sum",
    "vector_mean",
]
