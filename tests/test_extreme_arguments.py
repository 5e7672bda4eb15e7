"""Extreme but finite numbers: a public function accepts them, or its error names an argument."""

import functools
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import nrjax
from nrjax import composition as c
from nrjax import counts, private_selection, questions
from nrjax.composition import conversions
from nrjax.stopping import accuracy

pytestmark = pytest.mark.numerical

FEW = 5e-324, 1e-42, 1e38, 1e300
"""A subnormal number of each dtype, and numbers whose squares leave it."""

MANY = [*FEW, 1e-310, 1e-300, 1e-160, 1e-46, 1e-39, 2e-38, 1e-30, 1e-20, 1e-10, 1e10, 1e19, 1e30]
MANY += [3e38, 1e39, 1e160, 1e308, 1.7e308, -1e-300, -1e-40, -1.0, -1e38, -1e308]


class Call(NamedTuple):
    """A public function, and ordinary arguments, each number of which becomes extreme in turn."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    also: tuple[str, ...] = ()
    """Further names of what is given, which a message may have."""

    def with_extremes(self, extremes):
        """Yield arguments with one extreme number, or with all numbers equal to it."""
        numbers = {name: x for name, x in self.arguments.items() if _numeric(x)}
        for x in extremes:
            changes = [{name: _filled(old, x)} for name, old in numbers.items()]
            changes.append({name: _filled(old, x) for name, old in numbers.items()})
            for change in changes:
                yield self.arguments | change


def _numeric(value):
    return isinstance(value, float) or (isinstance(value, (tuple, list)) and value)


def _filled(old, x):
    """Return x, or the old vector with x as its first and as its last number."""
    if isinstance(old, float):
        return x
    return type(old)([x if i in (0, len(old) - 1) else number for i, number in enumerate(old)])


def score(release, truth):
    return -jnp.abs(release - truth)


def candidate(key, data):
    return private_selection.Candidate(jax.random.uniform(key), jnp.ones(2))


def until(mechanism, **options):
    return mechanism.until(score, data=(0.0,), **options)


def brownian_until(sensitivity, at_least, low, high):
    mechanism = nrjax.brownian(0.0, sensitivity, 1e-6)
    return until(mechanism, at_least=at_least, levels=(low, high, 3))


def laplace_until(value, sensitivity, at_least, low, high):
    return until(nrjax.laplace(value, sensitivity), at_least=at_least, levels=(low, high, 3))


def private_until(sensitivity, at_least, of_score, margin):
    options = {"private": True, "sensitivity": of_score, "margin": margin}
    return until(nrjax.laplace(0.0, sensitivity), at_least=at_least, **options)


def rule_until(kind, **options):
    rule = kind(**options)
    levels = (0.1, 3.0, 3)
    sensitivity = rule.sensitivity
    return until(nrjax.laplace(0.0, 1.0), rule=rule, sensitivity=sensitivity, levels=levels)


def released(kind, sensitivity, time, later):
    """Release once, and once more."""
    guarantee = nrjax.PureGuarantee(sensitivity)
    releases = nrjax.Releases.of(1.0, kind(()), guarantee if kind is nrjax.Laplace else None)
    return releases.at(KEY, time)[0].at(KEY, later)


def epsilon_of(kind, sensitivity, time, epsilon):
    return kind.tight_at_epsilon(epsilon, sensitivity, 1e-6).epsilon(time)


def time_of(kind, sensitivity, epsilon, tuned):
    return kind.tight_at_epsilon(tuned, sensitivity, 1e-6).time(epsilon)


def spend(owner, kind, sensitivity, time):
    state, request = owner.init(), kind(sensitivity, time)
    if isinstance(owner, c.ExPostOdometer):
        return owner.bound(owner.spend(state, request))
    return owner.cost(request), owner.admits(state, request), owner.smallest_time(state, kind)


def question(function, error, **options):
    return getattr(questions, function)(**options).error(error)


KEY = jax.random.key(0)
one_row = functools.partial(nrjax.Sensitivity, norm="l1", relation="replace")
TIMES, ONES = [9.0, 4.0, 1.0], [1.0, 1.0, 1.0]
BOUNDARIES = {
    kind.__name__: kind
    for kind in (
        nrjax.LinearBoundary,
        nrjax.MixtureBoundary,
        nrjax.OneSidedMixtureBoundary,
        nrjax.RenyiBoundary,
    )
}
SIZE = {"sensitivity": 1.0}
PRIVATE = {"threshold": 0.5, **SIZE}


def _calls():
    """Yield a name and a `Call` for each public constructor, and for functions of numbers."""

    def of(function, **arguments):
        return Call(function, arguments)

    def bound(function, *first, **fixed):
        return lambda **arguments: function(*first, **arguments, **fixed)

    yield "Sensitivity", Call(bound(nrjax.Sensitivity, norm="l1"), {"value": 1.0}, ("sensitivity",))
    yield "of_rows", of(lambda sensitivity: one_row(sensitivity).of_rows(10), **SIZE)
    yield "Skellam", of(bound(nrjax.Skellam, ()), rate1=1.0, rate2=2.0)
    yield "LaplaceJumps", of(bound(nrjax.LaplaceJumps, ()), eta=1.0, horizon=3.0)
    for kind in (nrjax.Laplace, nrjax.Brownian, nrjax.DiscreteLaplace, nrjax.IndependentLaplace):
        yield kind.__name__, of(bound(nrjax.noise_path, KEY, kind(())), times=TIMES)
    for kind in (nrjax.PureGuarantee, nrjax.DiscretePureGuarantee):
        name = kind.__name__
        yield (
            f"{name}.epsilon",
            of(
                lambda sensitivity, time, kind=kind: kind(sensitivity).epsilon(time),
                time=2.0,
                **SIZE,
            ),
        )
        yield (
            f"{name}.time",
            of(
                lambda sensitivity, epsilon, kind=kind: kind(sensitivity).time(epsilon),
                epsilon=2.0,
                **SIZE,
            ),
        )
    for name, kind in BOUNDARIES.items():
        yield f"{name}.epsilon", of(bound(epsilon_of, kind), time=9.0, epsilon=0.5, **SIZE)
        yield f"{name}.time", of(bound(time_of, kind), epsilon=2.0, tuned=0.5, **SIZE)
        yield f"{name}.tight_at_time", of(kind.tight_at_time, time=9.0, delta=1e-6, **SIZE)
    yield "LinearBoundary", of(nrjax.LinearBoundary, delta=1e-6, a=0.1, b=90.0, **SIZE)
    yield "MixtureBoundary", of(nrjax.MixtureBoundary, delta=1e-6, rho=1.0, **SIZE)
    yield "RenyiBoundary", of(nrjax.RenyiBoundary, delta=1e-6, order=5.0, **SIZE)
    orders = {"orders": [5.0, 10.0], "weights": [1.0, 1.0]}
    yield (
        "RenyiMixture",
        of(lambda **a: nrjax.RenyiMixture(**a).epsilon(5.0), delta=1e-6, **orders, **SIZE),
    )
    prior = {"times": TIMES, "weights": ONES, "delta": 1e-6, **SIZE}
    yield "RenyiMixture.design", of(nrjax.RenyiMixture.design, **prior)
    yield "OneSided.design", of(nrjax.OneSidedMixtureBoundary.design, **prior)
    yield "HockeyStick.design", of(nrjax.HockeyStickBoundary.design, **prior)
    single = nrjax.HockeyStickBoundary.single
    yield "HockeyStick.epsilon", of(single, delta=1e-6, epsilon=0.5, **SIZE)
    yield "HockeyStick.time", of(single, delta=1e-6, time=90.0, **SIZE)
    yield "Grid.minimax", of(nrjax.GridBoundary.minimax, delta=1e-6, times=TIMES, **SIZE)
    minimax = bound(nrjax.GridBoundary.minimax_levels, levels=3)
    yield "Grid.minimax_levels", of(minimax, delta=1e-6, low=0.1, high=2.0, **SIZE)
    curve = {"times": TIMES, "heights": [20.0, 14.0, 7.0]}
    yield "GridBoundary", of(nrjax.GridBoundary, delta=1e-6, **curve, **SIZE)
    yield "Grid", of(nrjax.Grid, times=TIMES)
    for name in ("geometric", "linear", "squared"):
        made = bound(getattr(nrjax.Grid, name), nrjax.PureGuarantee(1.0), levels=3)
        yield f"Grid.{name}", Call(made, {"low": 0.1, "high": 2.0}, ("epsilon",))
    adaptive = bound(nrjax.AdaptiveTimes, choose=score, max_steps=3)
    yield "AdaptiveTimes", of(adaptive, first=9.0, last=1.0)
    yield "brownian", of(nrjax.brownian, value=1.0, delta=1e-6, **SIZE)
    tuned = {"tight_at_epsilon": 0.5, "delta": 1e-6, **SIZE}
    yield "brownian, linear", of(bound(nrjax.brownian, 1.0), **tuned)
    yield "laplace", of(nrjax.laplace, value=1.0, **SIZE)
    yield "discrete_laplace", of(nrjax.discrete_laplace, value=1.0, **SIZE)
    levels = {"low": 0.1, "high": 3.0}
    yield "brownian.until", of(brownian_until, at_least=-2.0, **levels, **SIZE)
    yield "laplace.until", of(laplace_until, value=0.0, at_least=-2.0, **levels, **SIZE)
    yield "private until", of(private_until, at_least=-9.0, of_score=0.5, margin=5.0, **SIZE)
    for kind in (nrjax.AboveThreshold, nrjax.LaplaceTests):
        yield f"{kind.__name__}.until", of(bound(rule_until, kind), epsilon=0.5, **PRIVATE)
    yield (
        "ReducedAboveThreshold.until",
        of(bound(rule_until, nrjax.ReducedAboveThreshold), **PRIVATE),
    )
    bounded = bound(nrjax.GaussianThreshold, steps=5)
    deviations = {"threshold_deviation": 4.0, "query_deviation": 5.0}
    yield "GaussianThreshold", of(bounded, low=-0.5, high=0.5, **deviations, **PRIVATE)
    yield "PublicThreshold", of(nrjax.PublicThreshold, threshold=1.0)
    fixed = nrjax.laplace(0.0, 1.0), nrjax.brownian(0.0, 1.0, 1e-6)
    for mechanism in fixed:
        name = type(mechanism.process).__name__
        for notion in ("hockey-stick", "probabilistic"):
            once = bound(nrjax.FixedRelease, mechanism, notion=notion)
            yield f"FixedRelease {name} {notion}", Call(once, {"epsilon": 0.5}, ("sensitivity",))
            at = bound(nrjax.FixedRelease.at_time, mechanism, notion=notion)
            yield f"at_time {name} {notion}", of(at, time=9.0)
    for kind in (nrjax.Laplace, nrjax.Brownian):
        yield f"Releases {kind.__name__}", of(bound(released, kind), time=9.0, later=3.0, **SIZE)
    # Rules' accuracy.
    test = {"epsilons": [0.1, 0.5, 9.0], "margin": 0.5, "sensitivity": 0.01}
    yield "private_test", of(accuracy.private_test, at_least=-1.0, **test)
    yield "first_level", of(accuracy.first_level, gamma=0.1, **test)
    gap = {"epsilon": 0.5, "sensitivity": 0.01}
    yield "acceptance_probability", of(accuracy.acceptance_probability, gap=0.5, **gap)
    yield "shortfall", of(accuracy.shortfall, gamma=0.1, share=0.5, **gap)
    yield "surplus", of(accuracy.surplus, refusal=0.1, **gap)
    # Composition.
    filters = {
        kind.__name__: kind
        for kind in (
            nrjax.ZCDPFilter,
            nrjax.UnifiedFilter,
            nrjax.GaussianFilter,
            nrjax.ExPostFilter,
        )
    }
    budget = {"epsilon": 1.0, "delta": 1e-6}
    for name, kind in filters.items():
        yield name, of(kind, **budget)
    yield "RenyiFilter", of(nrjax.RenyiFilter, order=16.0, **budget)
    request = c.LaplaceReduction(1.0, 10.0)
    yield "RenyiFilter.tuned", of(bound(nrjax.RenyiFilter.tuned, request=request), **budget)

    def side_by_side(first, second):
        zcdp, ex_post = nrjax.UnifiedFilter(first, 1e-6), nrjax.ExPostFilter(second, 1e-6)
        return nrjax.SideBySideFilter(zcdp, ex_post).epsilon

    yield "SideBySideFilter", Call(side_by_side, {"first": 1.0, "second": 1.0}, ("epsilon",))
    for kind in (nrjax.BrownianOdometer, nrjax.OneSidedBrownianOdometer):
        yield kind.__name__, of(kind, delta=1e-6, gamma=1.0)
        yield f"{kind.__name__}.tight_at", of(kind.tight_at, total=1.0, delta=1e-6)
    yield "RenyiOdometer", of(nrjax.RenyiOdometer, order=16.0, delta=1e-6)
    owners = (
        (nrjax.GaussianFilter(1.0, 1e-6), c.BrownianReduction),
        (nrjax.RenyiFilter(16.0, 1.0, 1e-6), c.LaplaceReduction),
        (nrjax.ExPostOdometer(), c.LaplaceMechanism),
    )
    for owner, kind in owners:
        yield f"spend {type(owner).__name__}", of(bound(spend, owner, kind), time=9.0, **SIZE)
    for kind, name in ((c.ZCDP, "rho"), (c.ExPost, "epsilon")):
        yield kind.__name__, of(kind, **{name: 0.1, "delta": 1e-7})
    for kind, name in ((c.GDP, "mu"), (c.Pure, "epsilon"), (c.BoundedRange, "epsilon")):
        yield kind.__name__, of(kind, **{name: 0.1})
    numbers = {"rho": 0.1, "mu": 0.1, "epsilon": 1.0, "delta": 1e-6}
    for name, names in (
        ("epsilon_of_zcdp", "rho delta"),
        ("zcdp_for", "epsilon delta"),
        ("gdp_for", "epsilon delta"),
        ("delta_of_gdp", "mu epsilon"),
    ):
        arguments = {key: numbers[key] for key in names.split()}
        yield name, of(getattr(conversions, name), **arguments)
    rdp = {"order": 5.0, "delta": 1e-6}
    yield "epsilon_of_rdp", of(conversions.epsilon_of_rdp, divergence=0.1, **rdp)
    yield "rdp_for", of(conversions.rdp_for, epsilon=2.0, **rdp)
    # Questions and counts.
    column = {"x": [1.0, 2.0, 3.0], "bounds": (0.0, 5.0), "error": 0.1}
    yield "mean", of(bound(question, "mean"), **column)
    yield "sum", of(bound(question, "sum"), **column)
    yield "sum, add-remove", of(bound(question, "sum", relation="add-remove"), **column)
    values = {"values": [1.0, 2.0, 3.0], "bins": [0.0, 2.0, 4.0], "error": 2.0}
    yield "histogram", of(bound(question, "histogram"), **values)
    yield "counts", of(bound(question, "counts", groups=["a", "b"]), within=5.0, error=0.5)

    def vector_mean(entry, row_norm, error):
        return question(
            "vector_mean", error, rows=[[entry, 2.0], [entry, entry]], row_norm=row_norm
        )

    yield "vector_mean", of(vector_mean, entry=1.0, row_norm=5.0, error=0.5)
    yield "RelativeError", of(counts.RelativeError, alpha=0.1)
    yield "ExponentialMechanism", of(counts.ExponentialMechanism, epsilon=0.1)
    keys = {"epsilon": 1.0, "delta": 1e-6}
    for method in ("laplace", "gaussian", "geometric"):
        key_threshold = bound(counts.KeyThreshold.fitted, [9, 1], method, keys_per_user=1)
        yield f"KeyThreshold {method}", of(key_threshold, **keys)
    unknown = bound(counts.unknown_keys, [9, 1], keys_per_user=1)
    yield "unknown_keys", of(unknown, delta=1e-6)
    yield (
        "PoissonSelection",
        of(bound(nrjax.PoissonSelection, candidate), epsilons=[0.5, 1.0], means=2.0),
    )
    yield (
        "RepeatedSelection",
        of(bound(private_selection.RepeatedSelection, candidate), epsilons=0.5, stop=0.1),
    )
    yield "LogBins", of(bound(nrjax.LogBins.covering, digits=2), low=0.1, high=9.0)


CALLS = dict(_calls())
MESSAGE = re.compile(r"^[^:]* must (be|cover|have|state)\b")


def outcome(call, arguments):
    """Return None if a call succeeds or is refused by a good message, else what is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call.function(**arguments)
    except (ValueError, TypeError) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        named = set(re.findall(r"\w+", str(error))) & {*arguments, *call.also}
        if "nrjax" not in frame.filename or not MESSAGE.match(str(error)) or not named:
            return f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {error}"
    except Exception as error:  # what the test is about
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {error}"
    return None


def failures(name, extremes):
    """Return the arguments of a call that fail, with what is wrong."""
    call = CALLS[name]
    tried = list(call.with_extremes(extremes))
    return [(arguments, wrong) for arguments in tried if (wrong := outcome(call, arguments))]


@pytest.mark.parametrize("name", CALLS)
def test_few_extremes(name):
    assert outcome(CALLS[name], CALLS[name].arguments) is None
    assert not failures(name, FEW)


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_many_extremes(name):
    assert not failures(name, MANY)
