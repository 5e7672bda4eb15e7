import itertools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import _counts, skellam
from nrjax.processes._counts import binomial, largest_count, poisson
from nrjax.processes.skellam import Skellam, SkellamState
from nrjax.types import Status

TRIALS = 40_000
TIMES = (4.0, 2.5, 0.7)
LIMIT = 1e-6  # of a false alarm, for a whole family
CASES = 2**13  # losses in one call


@pytest.fixture(scope="module")
def paths():
    """Noise at TIMES for many trials, shape (times, trials); rates 1 and 0.6."""
    return _draw(1.0, 0.6)


def _draw(rate1, rate2, reuse_key=False):
    keys = jax.random.split(jax.random.key(1), TRIALS)
    return np.asarray(_path(Skellam((), rate1, rate2), keys, 0 if reuse_key else 1))


@jax.jit
def _path(process, keys, apart):
    def trial(key):
        state = process.init(jax.random.fold_in(key, 0), TIMES[0])
        values = [process.value(state)]
        for step, time in enumerate(TIMES[1:], start=1):
            state = process.rewind(jax.random.fold_in(key, apart * step), state, time)
            values.append(process.value(state))
        return jnp.stack(values)

    return jax.vmap(trial, out_axes=1)(keys)


def _fresh(paths):
    """The fault: the right law at each time, but new counts at each step."""
    return np.stack([np.roll(values, 17 * i) for i, values in enumerate(paths)])


def _alarms(z):
    """Do z-scores exceed what a family of this size allows?"""
    return bool(np.max(np.abs(z)) > stats.norm.isf(LIMIT / (2 * np.size(z))))


def _bin_scores(values, law):
    lowest, highest = int(law.ppf(1e-3)), int(law.ppf(1 - 1e-3))
    inner = np.arange(lowest + 1, highest)
    expected = np.concatenate([[law.cdf(lowest)], law.pmf(inner), [law.sf(highest - 1)]])
    seen = np.bincount(
        np.clip(values, lowest, highest).astype(int) - lowest, minlength=len(inner) + 2
    )
    n = len(values)
    return (seen - n * expected) / np.sqrt(n * expected * (1 - expected))


def _law_scores(paths):
    laws = [stats.skellam(t, 0.6 * t) for t in TIMES]
    return np.concatenate([_bin_scores(v, law) for v, law in zip(paths, laws, strict=True)])


def _increment_scores(paths):
    """Mean, second moment and products of the standardised increments, as z-scores."""
    ends = np.concatenate([paths, np.zeros((1, paths.shape[1]))])
    lengths = -np.diff([*TIMES, 0.0])[:, None]
    x = ((ends[:-1] - ends[1:]) - 0.4 * lengths) / np.sqrt(1.6 * lengths)
    pairs = [x[i] * x[j] for i, j in itertools.combinations(range(len(x)), 2)]
    samples = np.concatenate([x, x**2 - 1, np.stack(pairs)])
    return samples.mean(axis=1) / (samples.std(axis=1) / np.sqrt(samples.shape[1]))


def _joint_scores(paths):
    """Each pair of (value at the smallest time, increment before it) against the product law."""
    later, step = paths[2], paths[1] - paths[2]
    law, step_law = stats.skellam(0.7, 0.42), stats.skellam(1.8, 1.08)
    scores = []
    for a, b in itertools.product(range(-2, 4), range(-3, 6)):
        p = law.pmf(a) * step_law.pmf(b)
        seen = np.sum((later == a) & (step == b))
        scores.append((seen - TRIALS * p) / np.sqrt(TRIALS * p * (1 - p)))
    return np.array(scores)


@pytest.mark.parametrize("scores", [_law_scores, _increment_scores, _joint_scores])
def test_law(paths, scores):
    assert not _alarms(scores(paths))


@pytest.mark.parametrize(
    ("fault", "seen_by"),
    [
        pytest.param(_fresh, (_increment_scores, _joint_scores), id="fresh noise at each step"),
        pytest.param(
            lambda _: _draw(0.92, 0.52),  # the mean stays
            (_law_scores, _increment_scores, _joint_scores),
            id="variance x 0.9",
        ),
        pytest.param(
            lambda _: _draw(1.0, 0.6, reuse_key=True),
            (_law_scores, _increment_scores, _joint_scores),
            id="reused key",
        ),
    ],
)
def test_planted_faults_are_seen(paths, fault, seen_by):
    faulty = fault(paths)
    for scores in seen_by:
        assert _alarms(scores(faulty)), scores


def test_counts_near_the_samplers_switch(dtype):
    # Means 8.4 and 12 lie on both sides of 10; 0.3 and 0.7 on both sides of 1/2.
    keys = jax.random.split(jax.random.key(3), 5)
    scores, wrong = [], []
    for key, mean in zip(keys, (8.4, 12.0), strict=False):
        drawn = np.asarray(poisson(key, jnp.asarray(mean, dtype), (TRIALS,)))
        scores.append(_bin_scores(drawn, stats.poisson(mean)))
        wrong.append(_bin_scores(drawn, stats.poisson(1.03 * mean)))
    for key, (n, p) in zip(keys[2:], ((28, 0.3), (40, 0.3), (40, 0.7)), strict=True):
        kept, lost = jnp.asarray(p, dtype), jnp.asarray(1 - p, dtype)
        drawn = np.asarray(binomial(key, jnp.full(TRIALS, n, dtype), kept, lost))
        scores.append(_bin_scores(drawn, stats.binom(n, p)))
        wrong.append(_bin_scores(drawn, stats.binom(n, 1.03 * p)))
    assert not _alarms(np.concatenate(scores))
    assert all(_alarms(z) for z in wrong)


def _large(time):
    """Counts at a time and those that thinning leaves at 0.4 of it, 2e5 coordinates of each."""
    process = Skellam((200_000,), 1.0, 1.0)
    first = process.init(jax.random.key(0), time)
    return first, process.rewind(jax.random.key(1), first, 0.4 * time)


def test_large_counts():
    first, second = _large(1e6)
    counts = [np.asarray(c[:TRIALS], float) for c in (*first[:2], *second[:2])]
    x = np.stack([(c - m) / np.sqrt(m) for c, m in zip(counts, (1e6, 1e6, 4e5, 4e5), strict=True)])

    def scores(x):
        levels = np.linspace(-3, 3, 13)[:, None, None]
        below = (x <= levels).mean(axis=-1)
        p = stats.norm.cdf(levels[..., 0])  # a Poisson law of mean 4e5 is within 1e-3
        return (below - p) / np.sqrt(p * (1 - p) / TRIALS + 1e-6)

    assert not _alarms(scores(x))
    assert _alarms(scores(x * 1.05))
    thinned = np.corrcoef(x)
    right = np.kron([[1, np.sqrt(0.4)], [np.sqrt(0.4), 1]], np.eye(2))
    assert not _alarms((thinned - right) * np.sqrt(TRIALS))


def _moment_scores():
    """Mean and variance of 4e5 counts at a time and of those that thinning leaves."""
    scores = []
    for time in (1e6, 1.6e7):
        n, kept = (np.concatenate(state[:2]).astype(float) for state in _large(time))
        for x in ((n - time) / np.sqrt(time), (kept - 0.4 * n) / np.sqrt(0.24 * n)):
            scores += [x.mean() * np.sqrt(x.size), (x.var() - 1) * np.sqrt(x.size / 2)]
    return np.array(scores)


def test_large_counts_have_the_right_moments():
    assert not _alarms(_moment_scores())


@pytest.mark.parametrize("sampler", ["poisson", "binomial"])
def test_the_samplers_of_jax_are_not_good_enough(monkeypatch, dtype, sampler):
    """Negative control: what `_counts` says of them is seen."""
    if sampler == "binomial" and dtype == jnp.float64:
        pytest.skip("jax.random.binomial is right at these counts in float64")
    theirs = {
        "poisson": lambda key, mean, shape: jax.random.poisson(key, mean, shape).astype(dtype),
        "binomial": lambda key, n, kept, lost: jax.random.binomial(key, n, kept).astype(dtype),
    }[sampler]
    monkeypatch.setattr(skellam, sampler, theirs)
    assert _alarms(_moment_scores())


def test_a_mean_of_zero_gives_no_count(monkeypatch, dtype):
    exponential = jax.random.exponential

    def often_zero(key, *arguments):
        drawn = exponential(key, *arguments)
        return jnp.where(drawn < 0.5, 0, drawn)

    monkeypatch.setattr(jax.random, "exponential", often_zero)
    key, mean = jax.random.key(0), jnp.zeros((), dtype)

    # Unwrapped, or a program compiled before the patch could serve.
    @jax.jit
    def drawn(key, mean):
        unguarded = _counts._gaps(key, (100,), jnp.broadcast_to(mean, (100,)), lambda gap: gap)
        return poisson.__wrapped__(key, mean, (100,)), unguarded

    guarded, unguarded = drawn(key, mean)
    assert not np.any(guarded)
    assert np.any(unguarded > 0)  # the fault is forced


# The loss. Oracle: the contour integral of the generating function through its saddle point, an
# exact formula, with the large terms in 50 digits; itself held against mpmath's Bessel function.


def _log_pmf(k, mean1, mean2, nodes=1500):
    k, mean1, mean2 = mp.mpf(float(k)), mp.mpf(mean1), mp.mpf(mean2)
    w = mp.sqrt(k * k + 4 * mean1 * mean2)
    side, mean = (1, mean1) if k >= 0 else (-1, mean2)
    theta = side * mp.log((abs(k) + w) / (2 * mean))
    width = float(w)
    top = min(np.pi, 12 / np.sqrt(width)) if width > 300 else np.pi
    angle = (np.arange(nodes) + 0.5) * top / nodes
    s = angle * angle
    near = -(angle**3) / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110))))
    phase = float(k) * np.where(angle < 0.3, near, np.sin(angle) - angle)
    integral = np.exp(-2 * width * np.sin(angle / 2) ** 2) @ np.cos(phase) * top / nodes / np.pi
    return w - mean1 - mean2 - k * theta + mp.log(mp.mpf(float(integral)))


@pytest.mark.parametrize(
    ("k", "mean1", "mean2"),
    [(0, 0.5, 0.5), (3, 10, 2), (-7, 3, 3), (1, 1e-9, 2), (300, 100, 90), (-300, 1e3, 2e3)],
)
def test_the_oracle(k, mean1, mean2):
    with mp.workdps(50):
        m1, m2 = mp.mpf(mean1), mp.mpf(mean2)
        bessel = mp.besseli(abs(k), 2 * mp.sqrt(m1 * m2))
        direct = -m1 - m2 + mp.mpf(k) / 2 * mp.log(m1 / m2) + mp.log(bessel)
        assert abs(direct - _log_pmf(k, mean1, mean2)) < 1e-14


def _loss(*columns):
    """Losses of cases (time, rate1, rate2, noise, shift), padded: one program for all tests."""
    columns = np.stack(np.broadcast_arrays(*columns)).astype(jnp.result_type(float))
    assert columns.shape[1] <= CASES
    padded = np.pad(columns, ((0, 0), (0, CASES - columns.shape[1])), constant_values=1)
    return np.asarray(_losses(*padded))[: columns.shape[1]]


@jax.jit
@jax.vmap
def _losses(time, rate1, rate2, noise, shift):
    up, down = jnp.maximum(noise, 0), jnp.maximum(-noise, 0)
    state = SkellamState(up, down, time, jnp.asarray(False))
    return Skellam((), rate1, rate2).privacy_loss(state, shift)


def _grid():
    cases = []
    for time in (1e-12, 0.1, 3.0, 9.0, 10.5, 40.0, 300.0, 1e4, 1e6):
        for rate1, rate2 in ((1.0, 1.0), (1.0, 0.3), (0.25, 1.0), (1.0, 1e-4)):
            mean, deviation = time * (rate1 - rate2), np.sqrt(time * (rate1 + rate2))
            typical = {round(mean + c * deviation) for c in (-6, -2, -0.5, 0, 0.3, 1, 2.5, 6)}
            for noise in sorted(typical | {0, 1, -2, 19, -21, -int(time)}):
                shifts = {1, -1, 2, -3, 25, -40, 1000, -1000, -noise, 1 - 2 * noise, 10**6}
                cases += [(time, rate1, rate2, noise, shift) for shift in sorted(shifts)]
    return np.array(cases)


def test_loss_against_the_oracle(dtype):
    cases = _grid().astype(dtype)
    computed = np.asarray(_loss(*cases.T), float)
    memory = {}

    def log_pmf(k, time, rate1, rate2):
        case = (k, time, rate1, rate2)
        if case not in memory:
            memory[case] = _log_pmf(k, mp.mpf(time) * mp.mpf(rate1), mp.mpf(time) * mp.mpf(rate2))
        return memory[case]

    with mp.workdps(50):
        exact, error = np.empty(len(cases)), np.empty(len(cases))
        for i, (time, rate1, rate2, noise, shift) in enumerate(cases.astype(float)):
            rates = (time, rate1, rate2)
            right = log_pmf(noise, *rates) - log_pmf(noise + shift, *rates)
            exact[i], error[i] = float(right), float(computed[i] - right)
    tolerance = {4: 1e-3, 8: 1e-9}[dtype.itemsize]
    # A loss of 1e4 has no more digits than this.
    allowed = tolerance + 10 * np.finfo(dtype).eps * np.abs(exact)
    worst = np.argmax(np.abs(error) / allowed)
    assert np.all(np.abs(error) <= allowed), (cases[worst], exact[worst], error[worst])
    time, rate1, rate2, noise, shift = cases.T.astype(float)
    typical = np.abs(noise - time * (rate1 - rate2)) <= 10 * np.sqrt(time * (rate1 + rate2)) + 20
    usual = typical & (np.abs(shift) <= 1000) & (np.abs(exact) < 100)
    assert np.sum(usual) > 1000
    assert np.max(np.abs(error[usual])) <= tolerance


@pytest.mark.parametrize(("time", "shift"), [(0.3, 1), (6.0, -2), (500.0, 30)])
def test_mean_of_exp_minus_loss_is_one(dtype, time, shift):
    rate1, rate2 = 1.0, 0.75
    mean, reach = time * 0.25, 30 + 12 * np.sqrt(time)
    k = np.arange(np.floor(mean - reach), mean + reach)
    loss = _loss(time, rate1, rate2, k, shift).astype(float)
    weights = stats.skellam(time * rate1, time * rate2).pmf(k)
    tolerance = {4: 2e-4, 8: 1e-9}[dtype.itemsize]
    assert abs(weights @ np.exp(-loss) - 1) < tolerance
    assert abs(weights @ np.exp(loss) - 1) > 10 * tolerance  # the wrong sign is seen
    wrong = _loss(time, 0.8 * rate1, 0.8 * rate2, k, shift).astype(float)
    assert abs(weights @ np.exp(-wrong) - 1) > 10 * tolerance  # and wrong rates


def test_loss_sums_over_coordinates(dtype):
    process = Skellam((3,), 1.0, 0.5)
    state = process.init(jax.random.key(0), 20.0)
    shift = np.array([1, 0, -2])
    loss = process.privacy_loss(state, shift)
    assert loss.shape == ()
    assert loss.dtype == dtype
    each = _loss(20.0, 1.0, 0.5, process.value(state), shift)
    np.testing.assert_allclose(loss, np.sum(each), rtol=1e-5)
    assert process.privacy_loss(state, 0) == 0


def test_one_rate_may_be_zero(dtype):
    process = Skellam((1000,), 0.0, 2.0)
    state = process.rewind(jax.random.key(1), process.init(jax.random.key(0), 5.0), 3.0)
    x = np.asarray(process.value(state), float)
    assert np.all(x <= 0)
    law = stats.poisson(6.0)
    for shift in (-1, -40):
        right = law.logpmf(-x) - law.logpmf(-x - shift)
        np.testing.assert_allclose(
            _loss(3.0, 0.0, 2.0, x, shift),
            right,
            rtol=1e-5,
            atol={4: 1e-4, 8: 1e-9}[dtype.itemsize],
        )
    k = np.array([-2, -1, 0])
    np.testing.assert_array_equal(np.isposinf(_loss(3.0, 0.0, 2.0, k, 1)), [False, False, True])
    np.testing.assert_array_equal(_loss(3.0, 0.0, 2.0, k, 0), 0)


def test_shift_must_be_an_integer():
    process = Skellam((3,), 1.0, 1.0)
    state = process.init(jax.random.key(0), 3.0)
    for shift in (0.5, np.array([1.0, 1.5, 0.0]), np.nan, np.inf):
        with pytest.raises(ValueError, match=r"shift = .*integers"):
            process.privacy_loss(state, shift)
    traced = jax.jit(process.privacy_loss)
    assert jnp.isposinf(traced(state, jnp.array([1.0, 1.5, 0.0])))
    assert jnp.isposinf(traced(state, jnp.array([0.0, jnp.nan, 1.0])))
    assert jnp.isfinite(traced(state, jnp.array([1.0, 2.0, -3.0])))


def test_overflow_is_detected_and_sticks(dtype):
    process = Skellam((3,), 1.0, 1e-3)
    too_late = 1.01 * largest_count(dtype)
    state = process.init(jax.random.key(0), too_late)
    assert process.status(state) == Status.OVERFLOW
    state = process.rewind(jax.random.key(1), state, 1.0)
    assert process.status(state) == Status.OVERFLOW
    assert not np.any(np.isfinite(process.value(state)))
    # The mean fits, but some of these counts do not.
    many = Skellam((1000,), 1e-3, 1.0)
    assert many.status(many.init(jax.random.key(2), largest_count(dtype))) == Status.OVERFLOW
    fine = many.init(jax.random.key(2), 0.9 * largest_count(dtype))
    assert many.status(fine) == Status.RUNNING
    assert many.status(fine).dtype == jnp.int32


def test_constructor_refuses():
    for rates, name in (
        ((-1.0, 1.0), "rate1 = -1.0"),
        ((1.0, np.inf), "rate2 = inf"),
        ((np.nan, 1.0), "rate1 = nan"),
        ((0.0, 0), "rate1, rate2"),
    ):
        with pytest.raises(ValueError, match=name):
            Skellam((), *rates)
    with pytest.raises(ValueError, match="shape = 3"):
        Skellam(3, 1.0, 1.0)  # pyright: ignore[reportArgumentType]


def test_rewinding_to_the_same_time_changes_nothing():
    process = Skellam((3,), 2.0, 900.0)
    state = process.init(jax.random.key(0), 1.3)
    again = process.rewind(jax.random.key(1), state, 1.3)
    jax.tree.map(np.testing.assert_array_equal, again, state)
    # A later time has no law here; it must not be a silent value, nor hang.
    assert np.all(np.isnan(process.value(process.rewind(jax.random.key(1), state, 2.0))))


@pytest.mark.long  # the conformance suite sees as much, at other rates
def test_pure_and_the_same_under_jit_and_vmap(dtype):
    rates = jnp.linspace(1, 2, 6, dtype=dtype), jnp.linspace(30, 50, 6, dtype=dtype)
    processes = Skellam((4,), *rates)
    keys = jax.random.split(jax.random.key(5), 6)

    def trial(process, key):
        state = process.init(jax.random.fold_in(key, 0), 7.0)
        state = process.rewind(jax.random.fold_in(key, 1), state, 2.0)
        return state, process.privacy_loss(state, 2)

    batched, alone = jax.jit(jax.vmap(trial)), jax.jit(trial)
    together, loss = batched(processes, keys)
    jax.tree.map(np.testing.assert_array_equal, batched(processes, keys), (together, loss))
    for i, key in enumerate(keys):
        process = Skellam((4,), rates[0][i], rates[1][i])
        state, one = alone(process, key)
        for a, b in zip(state, together, strict=True):
            np.testing.assert_array_equal(a, b[i])
        np.testing.assert_allclose(one, loss[i], rtol=1e-5, atol=1e-5)
        if i == 0:
            eager, _ = trial(process, key)
            jax.tree.map(np.testing.assert_array_equal, eager, state)
    value = processes.value(together)
    assert value.dtype == dtype
    assert jnp.all(value == jnp.round(value))
    assert len(np.unique(together.negative)) > 12  # neither coordinates nor trials share noise
    assert batched._cache_size() == alone._cache_size() == 1  # rates are leaves
