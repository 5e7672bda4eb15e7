"""The NumPy peer of the Rogers 2023 benchmark has the law of nrjax."""

import math

import numpy as np
import pytest

from benchmarks import numpy_rogers
from nrjax.keys import study_key
from nrjax.papers import rogers2023
from nrjax.simulation import montecarlo
from tests.papers.shared import apart, counts_file

COUNTS = np.round(3000 * np.arange(1, 31) ** -0.9)
METHODS = ("brownian", "doubling")
OPTIONS = {"epsilon": 1.0, "selection": 0.02, "levels": 50, "smallest": (1e-4,)}
SEED, OURS, THEIRS = 5, 2048, 1500


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """By method, what the study runs."""
    path = counts_file(tmp_path_factory.mktemp("data") / "own.csv", dict(enumerate(COUNTS)))
    chosen = rogers2023.Settings(data=(str(path),), method=METHODS, **OPTIONS)
    cases, _ = rogers2023.cases(chosen)
    return {case.labels["method"]: case.trial for case in cases.values()}


@pytest.fixture(scope="module")
def ours(releases):
    """By method, all trials."""
    # Laid out as in test_rogers2023, so that what was compiled there serves here.
    return {
        method: montecarlo.sessions(release, OURS).run(study_key(SEED), OURS)
        for method, release in releases.items()
    }


def numpy_samples(method, selection=OPTIONS["selection"]):
    budget = numpy_rogers.unified(OPTIONS["epsilon"], 1e-6, selection)
    rng, levels = np.random.default_rng(0), OPTIONS["levels"]
    options = (COUNTS, method, 0.1, OPTIONS["selection"], budget, 1e-4, levels)
    return samples(*np.array([numpy_rogers.session(rng, *options) for _ in range(THEIRS)]).T)


def samples(returned, precise, attempted, squared):
    """What is compared: means, and a second moment, of these; spent in squared parameters."""
    returned = np.asarray(returned, float)
    return {
        "returned": returned,
        "returned squared": (returned - 20) ** 2,
        "precision": np.where(returned > 0, precise / np.maximum(returned, 1), 1.0),
        "attempted": np.asarray(attempted, float),
        "spent": np.asarray(squared, float),
    }


def differing(ours, theirs):
    """Names of what differs by more than chance."""
    names = ("returned", "precise", "attempted")
    return apart(samples(*(ours[name] for name in names), 2 * ours["spent"]), theirs)


@pytest.mark.parametrize("method", METHODS)
def test_sessions_have_the_law_of_a_plain_numpy_loop(ours, method):
    found = ours[method]
    assert found["returned"].std() > 0.5
    assert 0 < (found["returned"] < found["attempted"]).mean() <= 1
    assert found["attempted"].max() < COUNTS.size  # it is the budget that ends a session
    assert differing(found, numpy_samples(method)) == {}


def fresh_reduction(rng, count, alpha, smallest, most, levels):
    """Noise at each level that does not follow from the last one's: right at every level."""
    squared = np.linspace(smallest, most, levels)
    noisy = count + rng.standard_normal(levels) / np.sqrt(squared)
    good = numpy_rogers.accepted(noisy, np.sqrt(squared), alpha)
    first = int(np.argmax(good))
    return (noisy[first], squared[first]) if good[first] else (math.nan, most)


def last_try_alone(rng, count, alpha, smallest, most, levels):
    """Doubling that pays for its last try only."""
    noisy, spent = numpy_rogers.doubling(rng, count, alpha, smallest, most, levels)
    return noisy, (spent + smallest) / 2  # of 1 + 2 + ... + 2^k the last is half, and half of 1


@pytest.mark.parametrize(
    ("method", "faulty"), [("brownian", fresh_reduction), ("doubling", last_try_alone)]
)
def test_planted_another_release_is_noticed(ours, method, faulty, monkeypatch):
    monkeypatch.setitem(numpy_rogers.METHODS, method, faulty)
    assert "returned" in differing(ours[method], numpy_samples(method))


def test_planted_dearer_selections_are_noticed(ours):
    """As of neighbours that replace a user: four times as dear."""
    assert "returned" in differing(ours["brownian"], numpy_samples("brownian", selection=0.04))


def test_the_condition_is_that_of_the_rule(releases):
    """As printed in the paper, and as two thresholds."""
    rng = np.random.default_rng(1)
    parameter = 10 ** rng.uniform(-3, 0, 20_000)
    noisy = rng.uniform(-60, 60, parameter.size) / parameter
    printed = numpy_rogers.accepted(noisy, parameter, 0.1)
    rule = np.asarray(releases["brownian"].accuracy.accepts(noisy, 1 / parameter))
    # Float32 may decide otherwise on the edge itself.
    edge = np.min(np.abs(noisy * parameter - np.array([[21.0], [-19.0]])), axis=0) < 1e-3
    np.testing.assert_array_equal(printed[~edge], rule[~edge])
    assert edge.mean() < 1e-3
    assert 0.3 < printed.mean() < 0.9
