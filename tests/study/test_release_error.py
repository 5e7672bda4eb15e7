"""The error of a stopped release: coverage of intervals, in reports and in memory."""

import jax
import numpy as np
import pytest

import nrjax
from nrjax._base.keys import study_key
from nrjax.study.release_error import RELEASE_ERROR, Coverage, ReleaseError, coverage, remarks

VALUE = np.array([3.0, 5.0])


def score(release, truth):
    return -abs(release - truth).max()


def never(release):
    return -abs(release).max() * 0


def interaction(score=score, at_least=-0.5, data=(VALUE,)):
    mechanism = nrjax.brownian(VALUE, sensitivity=1.0, delta=1e-6)
    return mechanism.until(score, at_least=at_least, data=data, levels=(0.1, 10.0, 30))


@pytest.mark.long
def test_a_release_that_does_not_look_at_the_data_has_normal_coverage():
    """The test accepts the first release, whose noise is normal."""
    public = interaction(never, -0.5, ())
    outcome = nrjax.simulate(jax.random.key(0), public, trials=4000)
    found = coverage(public, outcome)
    assert found.naive == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 8000) ** 0.5)
    # Both of two independent coordinates are covered with probability 0.95 at 2.236.
    assert found.multiple == pytest.approx(2.236, abs=0.12)


@pytest.mark.long
def test_a_stop_at_a_small_error_covers_more_often():
    stopped = interaction()
    outcome = nrjax.simulate(jax.random.key(0), stopped, trials=2000)
    found = coverage(stopped, outcome)
    assert found.naive > 0.97
    error = np.abs(outcome.release - VALUE)[outcome.stopped]
    deviations = np.sqrt(outcome.time[outcome.stopped])
    ratio = error.max(axis=1) / deviations
    assert found.multiple == pytest.approx(np.quantile(ratio, 0.95, method="inverted_cdf"))
    assert found.naive == pytest.approx(np.mean(error <= 1.96 * deviations[:, None]))
    assert coverage(stopped, outcome._replace(time=np.full(2000, np.nan))) is None
    none = outcome._replace(status=np.full(2000, nrjax.Status.EXHAUSTED))
    assert coverage(stopped, none) is None


@pytest.mark.long  # tests of a choice have the same remarks
@pytest.mark.parametrize("keep", ["trials", "summary"])
def test_a_study_reports_it(tmp_path, keep):
    study = nrjax.Study("error", {"a": interaction()}, quantities=RELEASE_ERROR)
    results = study.run(tmp_path / "run", trials=300, keep=keep, progress=False)
    outcome = nrjax.simulate(study_key(0), interaction(), trials=300)
    want = coverage(interaction(), outcome)
    (line,) = remarks(results)
    assert line in str(results.table())
    naive, multiple = (float(line.split(f"{word} ")[1][:4]) for word in ("are", "within"))
    assert naive == pytest.approx(100 * want.naive, abs=0.06)
    assert multiple == pytest.approx(want.multiple, rel=0.02)
    without = nrjax.Outcomes({"a": outcome})
    assert remarks(without) == []


@pytest.mark.parametrize("trials", [1, 10, 30, 256])
def test_the_sentence_is_true_of_the_trials_that_it_is_about(trials):
    stopped = interaction()
    error = np.random.default_rng(trials).exponential(1.0, trials)
    release = np.asarray(stopped.value.number, float) + error[:, None]
    fields = {field: np.zeros(trials) for field in nrjax.Outcome._fields}
    status = np.full(trials, nrjax.Status.STOPPED)
    outcome = nrjax.Outcome(**fields)._replace(release=release, time=np.ones(trials), status=status)
    found = coverage(stopped, outcome)
    ratios = np.asarray(RELEASE_ERROR["error_largest"].of(outcome, stopped))
    shown = float(str(found).split("within ")[1].split()[0])
    for multiple in (found.multiple, shown):
        assert np.mean(ratios <= multiple) >= 0.95
    assert shown == pytest.approx(found.multiple, rel=0.011)


def test_it_is_one_function_for_all_cases():
    assert ReleaseError("largest") == RELEASE_ERROR["error_largest"].of
    assert hash(ReleaseError("largest")) == hash(ReleaseError("largest"))
    assert "are 95.0% of the numbers" in str(Coverage(0.95, 2.0))
