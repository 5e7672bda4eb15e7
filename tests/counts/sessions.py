"""A small session both ways, and the p-values that compare them; shared by the tests."""

import jax
import numpy as np

import nrjax
from nrjax.counts import CountRelease, ExponentialMechanism, RelativeError
from tests.counts.oracle import session
from tests.processes.laws import bonferroni, same_law_p, same_mean_p

COUNTS = np.round(1000 * np.arange(1, 31) ** -0.75)
ALPHA, SELECTION, SMALLEST, LEVELS, MARKS = 0.1, 0.1, 1e-4, 50, 10
TRIALS = 2048


def release(filter, method, **changes):
    given = {
        "counts": COUNTS,
        "selection": ExponentialMechanism(SELECTION),
        "accuracy": RelativeError(ALPHA),
        "filter": filter,
        "smallest": SMALLEST,
        "method": method,
        "levels": LEVELS,
        "marks": MARKS,
    }
    return CountRelease(**(given | changes))


@jax.jit
def _run(trial, numbers):
    keys = jax.vmap(lambda number: nrjax.trial_key(jax.random.key(3), number))(numbers)
    return jax.vmap(trial.run)(keys)


def run(trial, trials=TRIALS):
    return jax.tree.map(np.asarray, _run(trial, np.arange(trials, dtype=np.uint32)))


def numpy_sessions(method, prices, seed, trials=400, **fault):
    """Rows of `tests.counts.oracle.session`."""
    rng = np.random.default_rng(seed)
    rows = [
        session(rng, COUNTS, method, prices, SELECTION, ALPHA, SMALLEST, LEVELS, MARKS, **fault)
        for _ in range(trials)
    ]
    return np.array(rows, float)


def columns(result):
    """The same columns of a `Session`."""
    scalars = (result.returned, result.precise, result.attempted, result.spent)
    return np.column_stack([np.column_stack(scalars), result.returned_by]).astype(float)


def same_p(result, rows):
    """p-value that sessions and NumPy's have the same means and laws, column by column."""
    # Sessions often end with the whole budget spent, which the filter rounds down a little: equal
    # numbers must be seen as such.
    mine, rows = columns(result).round(3), rows.round(3)
    return bonferroni([same_mean_p(mine, rows), same_law_p(mine, rows)])


def check_bookkeeping(result, budget, reduced=True):
    """What holds of every session, whatever its noise; `reduced` says that of noise reduction."""
    if reduced:
        # A count that was discarded has taken all that was left, and that was not refused.
        assert np.all(result.attempted - result.returned <= 1)
    assert np.all(result.spent <= budget)
    assert np.all(result.precise <= result.returned)
    assert np.all(result.returned <= result.attempted)
    assert np.all(result.attempted <= len(COUNTS))
    for by, total in ((result.returned_by, result.returned), (result.precise_by, result.precise)):
        assert np.array_equal(by[:, -1], total)
        assert np.all(np.diff(by, axis=1) >= 0)
    assert np.all(result.precise_by <= result.returned_by)
