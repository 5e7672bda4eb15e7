"""Results do not depend on the unit: sensitivity 2^k gives those of sensitivity 1, scaled."""

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax import composition as c
from nrjax import questions
from nrjax._base.numerics import largest_divisor, noise_range
from nrjax.choice.questions import distance
from nrjax.processes import Exponential, _kernel
from nrjax.stopping import accuracy, first_yes

pytestmark = [pytest.mark.bits, pytest.mark.numerical]

DTYPE = jnp.result_type(float)
MOST, NEAR = (120, 45) if jnp.float32 == DTYPE else (1000, 450)
"""The largest power of two that is tried, and that which must be accepted everywhere."""
FEW = -MOST, -2 * MOST // 3, -NEAR, 3, NEAR, MOST
ALL = range(-MOST, MOST + 1, 5 if jnp.float32 == DTYPE else 40)
KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 200)
TIMES = np.array([9.0, 4.5, 4.4999, 1.0, 0.25, 0.01])
NAMES = re.compile(
    r"\b(sensitivity|times?|levels|low|bounds|row_norm|error|at_least|epsilons?|eta|rate1)\b"
)


class Scaled(NamedTuple):
    """A result, which is proportional to the unit to this power."""

    value: Any
    power: int = 0


@np.errstate(over="ignore", under="ignore")
def ldexp(x: Any, k: int) -> Any:
    return np.ldexp(x, k)


def number(k: int, power: int = 1) -> float:
    return float(ldexp(1.0, power * k))


def differences(subject: Callable[[int], dict[str, Scaled]], k: int) -> list[str] | None:
    """Return the names of results at 2^k that differ from those at 1; None if it is refused."""
    usual = subject(0)
    try:
        found = subject(k)
    except ValueError as error:
        if not NAMES.search(str(error)):
            raise
        return None
    wrong = []
    for name, (value, power) in found.items():
        want = ldexp(np.asarray(usual[name].value, np.float64), power * k)
        value = np.asarray(value, np.float64)
        # A process reports by NaN that it cannot hold its noise.
        refused = np.isnan(value) & (name == "noise")
        if not np.array_equal(np.where(refused, want, value), want, equal_nan=True):
            wrong.append(name)
        if np.all(refused):
            return None
    return wrong


def check(subject: Callable[[int], dict[str, Scaled]], exponents: Any, near: int = NEAR) -> None:
    subject = functools.cache(subject)
    for k in exponents:
        wrong = differences(subject, k)
        assert not wrong, (k, wrong)
        assert wrong is not None or abs(k) > near, f"2^{k} is refused"


# Processes


PROCESSES = {
    "laplace": (lambda k: nrjax.Laplace((5,)), 1),
    "many coordinates": (lambda k: nrjax.Laplace((1100,)), 1),
    "independent": (lambda k: nrjax.IndependentLaplace((5,)), 1),
    "exponential": (lambda k: Exponential((5,)), 1),
    "jumps": (lambda k: nrjax.LaplaceJumps((5,), number(k, 1) / 128, number(k, 1) * 16, 40), 1),
    "brownian": (lambda k: nrjax.Brownian((5,)), 2),
    "spherical": (lambda k: nrjax.SphericalLaplace((5,)), 1),
    "skellam": (lambda k: nrjax.Skellam((5,), number(-k), 2 * number(-k)), 1),
}

SLOW = "many coordinates", "independent", "exponential"
"""Further processes without parameters, whose programs take long to compile."""

paths = jax.jit(jax.vmap(nrjax.noise_path, (0, None, None)))
paths_at = jax.jit(jax.vmap(nrjax.noise_path, (None, None, 0)))


def _path(name: str, path: Any, k: int) -> dict[str, Scaled]:
    build, power = PROCESSES[name]
    with np.errstate(over="ignore", under="ignore"):
        times = ldexp(TIMES, power * k).astype(DTYPE)
    noise = path(times, jax.tree.map(lambda leaf: jnp.asarray(leaf, DTYPE), build(k)))
    return {"noise": Scaled(noise, 0 if name == "skellam" else 1)}


def one_path(name: str) -> Callable[[int], dict[str, Scaled]]:
    return functools.partial(_path, name, lambda times, process: paths(KEYS[:9], process, times))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name in ("many coordinates", "skellam")))
        for name in PROCESSES
    ],
)
def test_noise(name):
    check(one_path(name), FEW)


@pytest.mark.parametrize("end", [0, 1])
def test_noise_at_many_close_times_at_both_ends(end):
    """A rate of a step between close times must not be flushed to 0."""
    process, times = nrjax.Laplace((5,)), np.geomspace(1.0, 0.5, 3000)
    limit = np.log2(noise_range(DTYPE)[end])
    k = int(np.floor(limit)) if end else int(np.ceil(limit)) + 1
    usual, found = (paths(KEYS, process, ldexp(times, j).astype(DTYPE)) for j in (0, k))
    np.testing.assert_array_equal(ldexp(np.asarray(usual, np.float64), k), found)


@pytest.mark.parametrize(
    "name",
    ["laplace", "brownian", *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)],
)
def test_noise_of_many_units_in_one_program(name):
    """As in a sweep: the times differ from trial to trial."""
    build, power = PROCESSES[name]
    exponents = [k for k in FEW if abs(power * k) < MOST]
    times = np.stack([ldexp(TIMES, power * k) for k in (0, *exponents)]).astype(DTYPE)
    noise = np.asarray(paths_at(KEY, build(0), times), np.float64)
    for k, found in zip(exponents, noise[1:], strict=True):
        np.testing.assert_array_equal(
            np.where(np.isnan(found), 0, found), np.where(np.isnan(found), 0, ldexp(noise[0], k))
        )


def constant_path(name: str) -> Callable[[int], dict[str, Scaled]]:
    """Return a function of k that rewinds noise to times which are constants of the program."""
    build, power = PROCESSES[name]

    def subject(k):
        times, process = [number(power * k) * time for time in (16.0, 1.5, 1.4999, 1.0)], build(k)

        @jax.jit
        @jax.vmap
        def path(key):
            state = process.init(key, times[0])
            for i, time in enumerate(times[1:]):
                state = process.rewind(jax.random.fold_in(key, i), state, time)
            return state.value

        return {"noise": Scaled(path(KEYS[:99]), 1)}

    return subject


WITHIN = tuple(int(share * MOST) for share in (-0.55, 0.51, 0.7))
"""Powers of two at which a product of two times leaves the dtype."""


@pytest.mark.parametrize(
    "name",
    [
        "laplace",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("exponential", "brownian", "spherical")
        ),
    ],
)
def test_times_may_be_constants_of_a_program(name):
    """XLA rearranges products of constants, as in `(t unit) (s unit)`."""
    power = PROCESSES[name][1]
    check(constant_path(name), [k // power for k in WITHIN], near=MOST)


def test_constant_times_of_releases():
    """A release between two others stays at the lower one with probability `(s/t)^2`."""

    def subject(k):
        @jax.jit
        @jax.vmap
        def shown(key):
            releases = nrjax.Releases.of(jnp.zeros(()), nrjax.Laplace(()), None)
            found = []
            for i, time in enumerate((1.0, 16.0, 4.0)):
                key = jax.random.fold_in(key, i)
                releases, release = releases.at(key, time * number(k))
                found.append(release)
            return jnp.stack(found)

        return {"release": Scaled(shown(KEYS), 1)}

    check(subject, WITHIN, near=MOST)


@pytest.mark.parametrize("kind", [nrjax.Laplace, nrjax.Brownian])
def test_releases_between_others(kind):
    power = 2 if kind is nrjax.Brownian else 1

    def subject(k):
        releases = nrjax.Releases.of(np.zeros(3), kind((3,)))
        shown = []
        for i, time in enumerate((8.0, 0.5, 2.0, 16.0, 1.0, 3.0)):
            releases, release = releases.at(jax.random.fold_in(KEY, i), ldexp(time, power * k))
            shown.append(release)
        return {"release": Scaled(np.stack(shown), 1)}

    check(subject, FEW)


# The law, at both ends


def ends(power: int) -> tuple[float, float]:
    least, most = noise_range(DTYPE)
    return 128 * least, most / 8


def p_values(process: Any, first: float) -> list[float]:
    """Return p-values of the noise at three times, and of its changes."""
    times = np.asarray([1.0, 0.5, 0.1]) * first
    keys = jax.random.split(jax.random.key(1), 4000)
    noise = np.asarray(
        jax.jit(jax.vmap(lambda key: nrjax.noise_path(key, process, times.astype(DTYPE))))(keys),
        np.float64,
    )
    shares = (0.5, 0.2)
    if isinstance(process, nrjax.Brownian):
        scaled = noise / np.sqrt(times)
        law = stats.norm.cdf
        moves = [
            stats.kstest(
                (scaled[:, i + 1] - np.sqrt(r) * scaled[:, i]) / np.sqrt(1 - r), law
            ).pvalue
            for i, r in enumerate(shares)
        ]
    else:
        scaled, law = noise / times, stats.laplace.cdf
        stays = [int(np.sum(noise[:, i + 1] == noise[:, i])) for i in (0, 1)]
        # A coordinate stays with probability s^2/t^2.
        moves = [
            stats.binomtest(n, len(keys), r * r).pvalue for n, r in zip(stays, shares, strict=True)
        ]
    return [float(p) for p in (*(stats.kstest(x, law).pvalue for x in scaled.T), *moves)]


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("kind", [nrjax.Laplace, nrjax.Brownian])
def test_law_at_both_ends(kind, end):
    assert min(p_values(kind(()), ends(1)[end])) > 1e-4


def test_a_product_of_two_times_is_caught(monkeypatch):
    """Without the unit, XLA multiplies two times: bits and p-values both show it."""
    one = lambda size: (jnp.ones_like(size), jnp.ones_like(size))  # noqa: E731
    monkeypatch.setattr(_kernel, "unit_of", one)
    jax.clear_caches()
    try:
        assert min(p_values(nrjax.Laplace(()), ends(1)[0])) < 1e-9
        found = one_path("laplace")
        assert "noise" in (differences(found, -MOST // 2 - 20) or [])
    finally:
        jax.clear_caches()


# Guarantees and rules


KINDS = (
    nrjax.LinearBoundary,
    nrjax.MixtureBoundary,
    nrjax.OneSidedMixtureBoundary,
    nrjax.RenyiBoundary,
)


def _boundary(k: int, kind: Any, tuned: str) -> Any:
    if tuned == "epsilon":
        return kind.tight_at_epsilon(0.5, number(k), 1e-6)
    return kind.tight_at_time(9.0 * number(k, 2), number(k), 1e-6)


GUARANTEES: dict[str, tuple[Callable[[int], Any], int]] = {
    "pure": (lambda k: nrjax.PureGuarantee(number(k)), 1),
    "three orders": (
        lambda k: nrjax.RenyiMixture(number(k), 1e-6, [20.0, 40.0, 80.0], [3.0, 3.0, 4.0]),
        2,
    ),
    "grid": (
        lambda k: nrjax.GridBoundary.minimax(
            sensitivity=number(k), delta=1e-6, times=ldexp([400.0, 9.0, 0.5], 2 * k)
        ),
        2,
    ),
    "hockey-stick": (
        lambda k: nrjax.HockeyStickBoundary.design(
            ldexp([400.0, 9.0, 0.5], 2 * k), np.ones(3), number(k), 1e-6
        ),
        2,
    ),
}
GUARANTEES |= {
    f"{kind.__name__} {tuned}": (functools.partial(_boundary, kind=kind, tuned=tuned), 2)
    for kind in KINDS
    for tuned in ("epsilon", "time")
}


def guaranteed(name: str) -> Callable[[int], dict[str, Scaled]]:
    build, power = GUARANTEES[name]

    def subject(k):
        guarantee = build(k)
        times = ldexp([400.0, 9.0, 0.5], power * k)
        # The epsilon of a larger time is stated as that of the largest.
        held = times <= largest_divisor(DTYPE)
        epsilons = np.asarray(guarantee.epsilon(times))
        found = {str(i): Scaled(epsilons[i]) for i in np.flatnonzero(held)}
        return found | {"time": Scaled(guarantee.time(np.asarray([3.0, 30.0])), power)}

    return subject


@pytest.mark.parametrize("name", GUARANTEES)
def test_guarantees(name):
    check(guaranteed(name), FEW)


def test_levels():
    def subject(k):
        levels = {"low": 0.1, "high": 3.0, "levels": 4}
        grid = nrjax.GridBoundary.minimax_levels(sensitivity=number(k), delta=1e-6, **levels)
        pure = nrjax.Grid.geometric(nrjax.PureGuarantee(number(k)), 0.1, 3.0, 4)
        return {
            "times": Scaled(grid.times, 2),
            "heights": Scaled(grid.heights, 1),
            "scales": Scaled(pure.times, 1),
        }

    check(subject, FEW)


UTILITIES = np.array([-20.0, 3.0, -1.0, 4.0, 12.0, 30.0])
EPSILONS = np.geomspace(0.1, 3.0, UTILITIES.size)
RULES: dict[str, Callable[[float], Any]] = {
    "above": lambda s: nrjax.AboveThreshold(2 * s, s, 0.7),
    "exponential": lambda s: nrjax.AboveThreshold(2 * s, s, 0.7, noise="exponential"),
    "reduced": lambda s: nrjax.ReducedAboveThreshold(2 * s, s),
    "reduced exponential": lambda s: nrjax.ReducedAboveThreshold(2 * s, s, noise="exponential"),
    "laplace tests": lambda s: nrjax.LaplaceTests(2 * s, s, 0.7),
    "gaussian": lambda s: nrjax.GaussianThreshold(2 * s, s, -9 * s, 9 * s, 4 * s, 5 * s, steps=6),
}


@jax.jit
def answers(rule, keys, utilities):
    """Return the steps and statuses of the first positive answers."""

    def one(key):
        found = first_yes(key, rule, utilities, jnp.asarray(EPSILONS, DTYPE))
        return found.step, found.cost, found.status

    return jax.vmap(one)(keys)


@pytest.mark.parametrize("name", RULES)
def test_rules(name):
    def subject(k):
        rule = RULES[name](number(k))
        rule.check_resolved(DTYPE)
        rule.check_held(EPSILONS, DTYPE)
        rule = jax.tree.map(lambda leaf: jnp.asarray(leaf, DTYPE), rule)
        found = answers(rule, KEYS, ldexp(UTILITIES, k).astype(DTYPE))
        return {f"{i}": Scaled(x) for i, x in enumerate(found)}

    check(subject, FEW)


def test_accuracy_of_rules():
    def subject(k):
        s = number(k)
        test = accuracy.private_test(-20 * s, list(EPSILONS), s, margin=9 * s, confidence=0.6)
        gaps = ldexp([0.5, 3.0, 40.0], k)
        return {
            "accepted": Scaled(accuracy.acceptance_probability(gaps, 0.7, s)),
            "epsilon": Scaled(accuracy.epsilon_for_shortfall(gaps, s, 0.1)),
            "shortfall": Scaled(accuracy.shortfall(0.7, s, 0.1), 1),
            "first": Scaled(test.first),
            "threshold": Scaled(test.rule.threshold, 1),
        }

    check(subject, FEW)


# Trials


def score(release, target):
    return -jnp.max(jnp.abs(release - target))


def _mechanism(name: str, k: int) -> Any:
    value = ldexp([1.0, -2.0, 0.5], k)
    if name.startswith("brownian"):
        kinds = {"brownian": {}, "brownian, one-sided": {"boundary": nrjax.OneSidedMixtureBoundary}}
        tuned = {} if name == "brownian" else {"tight_at_epsilon": 0.5}
        return nrjax.brownian(value, number(k), 1e-6, **kinds[name], **tuned)
    return nrjax.laplace(value, number(k))


TRIALS = {
    "laplace": {},
    "laplace, private": {"private": True, "margin": 40.0, "sensitivity": 1.0},
    "brownian": {},
    "brownian, one-sided": {},
}
LONG = "laplace, private", "brownian"
many = jax.jit(jax.vmap(nrjax.run_until, (0, None)))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in TRIALS]
)
def test_trials(name):
    def subject(k):
        mechanism, options = _mechanism(name, k), dict(TRIALS[name])
        for key in {"margin", "sensitivity"} & options.keys():
            options[key] *= number(k)
        target = ldexp([1.0, -2.0, 0.5], k)
        options |= {"at_least": -5 * number(k), "data": (target,), "levels": (0.1, 6.0, 8)}
        ended = many(KEYS, mechanism.until(score, **options))
        power = 2 if name.startswith("brownian") else 1
        powers = {"time": power, "release": 1, "hypothesis": 1, "utility": 1}
        return {field: Scaled(x, powers.get(field, 0)) for field, x in ended._asdict().items()}

    check(subject, FEW)


# Filters, odometers and questions


OWNERS: dict[str, tuple[Any, Any, int]] = {
    "gaussian": (nrjax.GaussianFilter(1.0, 1e-6), c.BrownianReduction, 2),
    "unified": (nrjax.UnifiedFilter(1.0, 1e-6), c.BrownianReduction, 2),
    "renyi": (nrjax.RenyiFilter(16.0, 1.0, 1e-6), c.LaplaceReduction, 1),
    "ex post": (nrjax.ExPostFilter(1.0, 1e-6), c.LaplaceReduction, 1),
    "odometer": (nrjax.OneSidedBrownianOdometer.tight_at(1.0, 1e-6), c.BrownianReduction, 2),
    "renyi odometer": (nrjax.RenyiOdometer(16.0, 1e-6), c.LaplaceMechanism, 1),
}


@pytest.mark.parametrize("name", OWNERS)
def test_filters(name):
    owner, kind, power = OWNERS[name]

    def subject(k):
        request, state = kind(number(k), 900.0 * number(k, power)), owner.init()
        if not request.well_formed(DTYPE):
            if not name.endswith("odometer"):
                assert not owner.admits(state, request)
            else:
                assert owner.bound(owner.spend(state, request)) == np.inf
            raise ValueError("time is refused")
        if name.endswith("odometer"):
            return {"bound": Scaled(owner.bound(owner.spend(state, request)))}
        taken, ok = owner.take(state, request)
        time = owner.smallest_time(taken, kind, number(k))
        return {
            "cost": Scaled(owner.cost(request)),
            "ok": Scaled(ok),
            "left": Scaled(owner.remaining(taken)),
            "time": Scaled(time, power),
        }

    check(subject, FEW)


def _questions(k: int) -> dict[str, Any]:
    column, table = ldexp([1.0, 2.0, 9.0], k), ldexp([[3.0, 4.0], [0.0, 0.5]], k)
    bounds = (-number(k), 6 * number(k))
    return {
        "mean": questions.mean(column, bounds),
        "sum": questions.sum(column, bounds),
        "vectors": questions.vector_mean(table, 2 * number(k)),
    }


def test_questions():
    def subject(k):
        found = {}
        for name, question in _questions(k).items():
            mechanisms = question.mechanisms
            found[f"{name} value"] = Scaled(mechanisms["laplace"].value, 1)
            for noise in ("laplace", "brownian"):
                stated = mechanisms[noise].guarantee.sensitivity
                found[f"{name} {noise}"] = Scaled(float(stated), 1)
            found[f"{name} sensitivity"] = Scaled(question.sensitivity, 1)
            error = question.error("20 %")
            found[f"{name} error"] = Scaled(error, 1)
            for noise, power in (("laplace", 1), ("brownian", 2)):
                time = question.fixed_time(noise, error, 0.9)
                # By a root search in log(time).
                found[f"{name} {noise} time"] = Scaled(round(float(ldexp(time, -power * k)), 6))
        return found

    check(subject, FEW)


def test_the_norm_of_an_error_neither_overflows_nor_vanishes():
    def subject(k):
        with np.errstate(over="ignore"):
            error = ldexp([3.0, -4.0, 0.25], k).astype(DTYPE)
        return {"score": Scaled(jax.jit(distance)(error, np.zeros(3, DTYPE)), 1)}

    check(subject, FEW, MOST)


@pytest.mark.long
def test_every_power():
    for name in PROCESSES:
        check(one_path(name), ALL)
    for name in GUARANTEES:
        check(guaranteed(name), ALL)
