"""Parts that are made in float64 and used in float32: refused, or their numbers hold there too."""

import dataclasses

import jax
import numpy as np
import pytest

import nrjax
from nrjax.counts.unknown_keys import laplace_quantile

KEY = jax.random.key(0)
LARGE = 2**24 + 1  # float32 has no such integer


def in_float64(make):
    with jax.enable_x64(True):
        return make()


def threshold(count=LARGE, **options):
    options = {"epsilon": 1.0, "delta": 1e-6, "keys_per_user": 1, **options}
    return nrjax.counts.KeyThreshold.fitted([count], "laplace", **options)


def problem(kind):
    angle = np.arange(50.0)
    rows, labels = np.stack([np.cos(angle), np.sin(angle)], 1), np.where(np.cos(angle) > 0, 1, -1)
    return kind.fit(rows, labels, regularisation=0.5)


def until(mechanism, **options):
    return lambda: mechanism.until(at_least=-1.0, **options)


def count_release():
    budget = nrjax.UnifiedFilter(1.0, 1e-6, relation="add-remove")
    parts = nrjax.counts.ExponentialMechanism(0.1), nrjax.counts.RelativeError(0.1)
    return nrjax.counts.CountRelease([LARGE, 5], *parts, budget, smallest=1e-6)


def unknown_keys(count=1):
    options = {"keys_per_user": 1, "delta": 1.19e-10, "levels": (1.0, 1.0, 1)}
    return nrjax.counts.unknown_keys([count, 1], **options)


def mean():
    return nrjax.questions.mean(np.arange(9) / 9, (0.0, 1.0))


def large():
    """Return trials whose numbers, near 1e9, float32 would round to multiples of 64."""
    mechanism = nrjax.laplace(1e9 + 31.9, 1.0)
    return mechanism.until(lambda release: -abs(release), at_least=0.0, levels=(0.1, 0.5, 5))


def releases():
    return nrjax.Releases.of(1e9 + 31.9, nrjax.Brownian(()), capacity=2)


REFUSED = {
    "interaction": ("interaction", large, lambda made: nrjax.run_until(KEY, made)),
    "simulated interaction": (
        "interaction",
        large,
        lambda made: nrjax.simulate(KEY, made, trials=4),
    ),
    "releases": ("releases", releases, lambda made: made.at(KEY, 1.0)),
    "threshold": ("KeyThreshold", threshold, lambda made: made.run(KEY)),
    "changed threshold": (
        "KeyThreshold",
        threshold,
        lambda made: dataclasses.replace(made, counts=np.ones(2)).run(KEY),
    ),
    "traced threshold": (
        "KeyThreshold",
        threshold,
        lambda made: jax.jit(lambda trial: trial.run(KEY))(made),
    ),
    "noise": ("KeyNoise", unknown_keys, lambda made: made.until(at_least=1)),
    "noise on its own": ("KeyNoise", unknown_keys, lambda made: made.process.init(KEY, 1.0)),
    "counts": ("CountRelease", count_release, lambda made: made.run(KEY)),
    "logistic": (
        "LogisticUtility",
        lambda: problem(nrjax.erm.LogisticProblem),
        lambda made: until(made.brownian(1e-6), private=True)(),
    ),
    "excess risk": (
        "LogisticUtility",
        lambda: problem(nrjax.erm.LogisticProblem),
        lambda made: made.brownian(1e-6).until(
            made.utility.excess_risk(), at_least=-0.5, private=True
        ),
    ),
    "ridge": (
        "RidgeUtility",
        lambda: problem(nrjax.erm.RidgeProblem).brownian(1e-6),
        lambda made: until(made, private=True)(),
    ),
    "question": ("Question", mean, lambda made: made.error(0.1)),
    "changed question": (
        "Question",
        mean,
        lambda made: dataclasses.replace(made, name="mine").error(0.1),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_narrower_run_is_refused_by_name(case):
    name, make, use = REFUSED[case]
    made = in_float64(make)
    in_float64(lambda: use(made))
    with jax.enable_x64(False), pytest.raises(ValueError, match=rf"^dtype of {name}.* float64, in"):
        use(made)


def test_a_wider_run_is_not():
    """The numbers that allow for float32 suffice."""
    with jax.enable_x64(False):
        made = [threshold(3), mean(), problem(nrjax.erm.LogisticProblem), unknown_keys()]
    trial, question, fitted, keys = made
    with jax.enable_x64(True):
        assert trial.run(KEY).release.dtype == np.float64
        assert question.error(0.1) == 0.1
        assert until(fitted.brownian(1e-6), private=True)().dtype == np.float64
        assert keys.until(at_least=1).dtype == np.float64


def test_public_rules_take_a_problem_in_another_dtype():
    fitted = in_float64(lambda: problem(nrjax.erm.LogisticProblem))
    with jax.enable_x64(False):
        assert until(fitted.brownian(1e-6))().dtype == np.float32


def test_a_ridge_mechanism_takes_the_allowance_of_its_own_dtype():
    fitted = in_float64(lambda: problem(nrjax.erm.RidgeProblem))
    with jax.enable_x64(False):
        expected = problem(nrjax.erm.RidgeProblem).utility_sensitivity
        assert until(fitted.brownian(1e-6), private=True)().rule.sensitivity >= np.float32(expected)


@pytest.mark.parametrize("chance", [1e-3, 1e-8, 2.0**-33, 1e-10, 1e-17, 1e-30])
@pytest.mark.parametrize("wide", [False, True])
def test_a_quantile_holds_for_words_of_both_sizes(chance, wide):
    with jax.enable_x64(wide):
        quantile = laplace_quantile(chance)
    tail = np.exp(-np.longdouble(quantile)) / 2  # of real noise
    for half in [2.0**-65] if wide else [2.0**-33, 2.0**-65]:
        # A word counts if its centre is above: at most the tail plus half a grain, or none at all.
        assert tail <= half * (1 + 1e-15) or tail + half <= chance * (1 + 1e-13)
