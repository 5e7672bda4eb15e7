"""Private tests with exponential noise, other shares, monotone utilities: law, cost, accuracy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import Exponential
from nrjax.stopping import AboveThreshold, ReducedAboveThreshold, accuracy, first_yes
from tests.processes.laws import FAULTY, SOUND, bonferroni, draw_paths, law_p, mean_p

pytestmark = pytest.mark.numerical


def above(x, scale, noise):
    """`P(noise >= x)`."""
    if noise == "exponential":
        return np.exp(-np.maximum(x, 0) / scale)
    half = 0.5 * np.exp(-np.abs(x) / scale)
    return np.where(x > 0, half, 1 - half)


def log_p(queries, epsilons, stopped=True, noise="exponential", share=0.5, monotone=False, **fault):
    """`log P(noes, then a yes)`, or of noes alone, at threshold 0: the oracle, on a grid.

    Seen from small scales to large ones the threshold noise of a step is that of the next one plus
    nothing, or plus fresh noise.
    """
    first = 1 / (share * np.asarray(epsilons, float))
    wide = (1 if monotone else 2) / ((1 - share) * np.asarray(epsilons, float))
    wide = wide * fault.get("query", 1.0)
    power, one_sided = (1, True) if noise == "exponential" else (2, False)
    z = np.linspace(0 if one_sided else -30, 30, 12_001 if one_sided else 24_001) * first[0]
    step, carried = z[1] - z[0], np.ones(z.size)
    for i, (query, b1, b2) in enumerate(zip(queries, first, wide, strict=True)):
        if i > 0:
            stay = (b1 / first[i - 1]) ** power
            decay = np.exp(-step / first[i - 1])
            kernel = (1 - decay) / (1 if one_sided else 2)
            up = _running(carried[::-1], decay)[::-1] * kernel
            if not one_sided:
                up = up + _running(carried, decay) * kernel - carried * kernel
            carried = stay * carried + (1 - stay) * up
        yes = above(fault.get("sign", 1) * (z - query), b2, noise)
        yes = 1 - yes if fault.get("sign", 1) < 0 else yes
        last = i + 1 == len(queries)
        carried = carried * (yes if stopped and last else 1 - yes)
    density = np.exp(-np.abs(z) / first[-1]) / first[-1] / (1 if one_sided else 2)
    return np.log(np.trapezoid(carried * density, z))


def _running(values, decay):
    """`sum_j decay^j values[i - j]`."""
    from scipy.signal import lfilter

    return lfilter([1.0], [1.0, -decay], values)


CASES = {
    "classical": (np.ones(3), {}),
    "rising": (np.array([0.3, 0.6, 1.0]), {}),
    "other share": (np.ones(3), {"share": 0.3}),
    "monotone": (np.ones(3), {"monotone": True}),
    "laplace, monotone": (np.ones(3), {"monotone": True, "noise": "laplace"}),
    "laplace, other share": (np.array([0.5, 0.8, 1.0]), {"share": 0.3, "noise": "laplace"}),
}


def rule(epsilons, **options):
    options = {"noise": "exponential", **options}
    if np.all(epsilons == epsilons[0]):
        return AboveThreshold(0.0, 1.0, epsilons[0], **options)
    return ReducedAboveThreshold(0.0, 1.0, **options)


@jax.jit
def _ends(rule, keys, queries, epsilons):
    found = jax.vmap(lambda key: first_yes(key, rule, queries, epsilons))(keys)
    return jnp.where(found.stopped, found.step, queries.size)


@pytest.mark.parametrize("case", CASES)
def test_law_of_the_stop(case):
    epsilons, options = CASES[case]
    queries = np.array([-1.5, 0.7, -0.4])
    keys = jax.random.split(jax.random.key(len(case)), 40_000)
    dtype = jnp.result_type(float)
    ends = _ends(rule(epsilons, **options), keys, queries.astype(dtype), epsilons.astype(dtype))
    counts = np.bincount(np.asarray(ends), minlength=4)

    def p_value(**changed):
        changed = options | changed
        exact = [np.exp(log_p(queries[: n + 1], epsilons[: n + 1], **changed)) for n in range(3)]
        exact = np.array([*exact, np.exp(log_p(queries, epsilons, False, **changed))])
        assert exact.sum() == pytest.approx(1, abs=2e-3)
        return stats.chisquare(counts, exact / exact.sum() * counts.sum()).pvalue

    assert p_value() > SOUND
    other = "laplace" if options.get("noise", "exponential") == "exponential" else "exponential"
    assert p_value(noise=other) < FAULTY
    assert p_value(query=0.7) < FAULTY


def losses(epsilons, options, rounds=50, **fault):
    """The largest log ratios of neighbours, as shares of what a yes and noes cost."""
    rng, worst = np.random.default_rng(5), {True: 0.0, False: 0.0}
    share = options.get("share", 0.5)
    for _ in range(rounds):
        size = rng.integers(1, len(epsilons) + 1)
        queries = rng.choice([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0], size) + rng.normal(size=size) / 9
        if options.get("monotone"):
            moves = np.full(size, rng.choice([-1.0, 1.0]))
        else:
            moves = rng.choice([-1.0, 1.0], size)
        for stopped in (True, False):
            given = epsilons[:size], stopped
            apart = log_p(queries, *given, **options, **fault)
            apart -= log_p(queries + moves, *given, **options, **fault)
            cost = epsilons[size - 1] * (1 if stopped else share)
            worst[stopped] = max(worst[stopped], abs(apart) / cost)
    return worst


@pytest.mark.parametrize("case", CASES)
def test_no_neighbours_tell_more_than_the_cost(case):
    epsilons, options = CASES[case]
    found = losses(epsilons, options)
    assert max(found.values()) <= 1 + 2e-3
    assert found[False] > 0.6
    if not options.get("monotone"):
        assert losses(epsilons, options, query=0.1)[True] > 1.1  # negative control


def test_two_queries_attain_the_cost():
    for epsilons, options in ((np.ones(2), {}), (np.ones(2), {"share": 0.4})):
        before = log_p([6.0, -30.0], epsilons, **options)
        after = log_p([7.0, -31.0], epsilons, **options)
        assert before - after == pytest.approx(1, rel=2e-3)
    with np.errstate(divide="ignore"):  # impossible there
        minus = [log_p([a, b], np.ones(2), sign=-1) for a, b in ((3.0, 1.0), (4.0, 0.0))]
    assert abs(minus[0] - minus[1]) > 1.1  # negative control: query noise taken away


def test_what_answers_cost():
    classical = AboveThreshold(0.0, 1.0, 2.0, noise="exponential", share=0.25)
    assert classical.cost(1.0, True) == 2.0
    assert classical.cost(1.0, False) == 0.5
    reduced = ReducedAboveThreshold(0.0, 1.0, share=0.25)
    np.testing.assert_allclose(reduced.cost(3.0, np.array([True, False])), [3.0, 0.75])
    for change in ({"noise": "normal"}, {"share": 0.0}, {"share": 1.0}, {"monotone": 1}):
        ((name, value),) = change.items()
        with pytest.raises(ValueError, match=f"{name} = {value!r}: must be"):
            AboveThreshold(0.0, 1.0, 2.0, **change)


def test_exponential_noise_is_rewound_by_its_kernel():
    times = np.array([5.0, 2.0, 1.5])
    path = draw_paths(Exponential((2,)), times, 60_000, seed=4)[0]

    def p(path):
        found = [law_p((path / times[None, :, None]).reshape(len(path), -1), stats.expon.cdf)]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            found.append(mean_p(path[:, i] == path[:, j], times[j] / times[i]))
            found.append(mean_p(path[:, i] * path[:, j], times[j] ** 2 + times[i] * times[j]))
        return bonferroni(found)

    assert p(path) > SOUND
    fresh = np.stack([np.roll(path[:, i], 17 * i, axis=0) for i in range(3)], axis=1)
    assert p(fresh) < FAULTY
    assert p(np.where(path == path[:, :1], path, path + 0.05)) < FAULTY


def test_accuracy_of_exponential_tests():
    keys, n = jax.random.split(jax.random.key(9), 200_000), 200_000
    one = AboveThreshold(0.0, 1.0, 2.0, noise="exponential")
    yes = jax.jit(jax.vmap(lambda key, u: first_yes(key, one, u[None]).stopped, (0, None)))
    for distance in (-1.5, 0.0, 2.0):
        exact = float(accuracy.acceptance_probability(distance, 2.0, 1.0, "exponential"))
        share = float(yes(keys, jnp.asarray(-distance, jnp.result_type(float))).mean())
        assert abs(share - exact) < 4 * np.sqrt(exact * (1 - exact) / n)
        laplace = float(accuracy.acceptance_probability(distance, 2.0, 1.0))
        assert abs(laplace - exact) > 9 * np.sqrt(exact * (1 - exact) / n)
    deep = accuracy.shortfall(2.0, 1.0, 0.1, 0.01, "exponential")
    np.testing.assert_allclose(
        accuracy.acceptance_probability(deep, 2.0, 1.0, "exponential"), 1e-3, rtol=1e-5
    )
    assert accuracy.epsilon_for_shortfall(deep, 1.0, 0.1, 0.01, "exponential") == pytest.approx(2)
    with pytest.raises(ValueError, match="noise = 'normal': must be"):
        accuracy.shortfall(2.0, 1.0, 0.1, noise="normal")  # type: ignore
