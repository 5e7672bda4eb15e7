"""The study from its settings to its store, summary and figures."""

import json
import math
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from nrjax.cli import main
from nrjax.erm import RidgeProblem
from nrjax.studies import ligett2017
from nrjax.studies.intervals import binomial_interval
from nrjax.studies.ligett2017.findings import comparisons, measure
from nrjax.studies.ligett2017.published import PublishedRidgeUtility
from nrjax.studies.store import Case, Pass, Store
from nrjax.types import Status

SHARED = Path(os.environ.get("NRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))
ROWS, LEVELS, TRIALS = 4000, 80, 96
ALPHAS = (0.04, 0.1, 0.2)
METHODS = ligett2017.Settings(out=Path()).method


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    """A user's own rows; their labels suit both tasks."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 4))
    y = np.where(x @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=ROWS) > 0, 1.0, -1.0)
    path = tmp_path_factory.mktemp("data") / "own.npz"
    np.savez(path, x=x, late=y, score=np.where(y > 0, 0.3, 0.0) + 0.1 * rng.uniform(size=ROWS))
    return path


def run(data_file, out, task, target, *more):
    """A small study by the command."""
    alphas = " ".join(map(str, ALPHAS))
    small = f"--alpha {alphas} --trials {TRIALS} --levels {LEVELS} --regularisation 0.05"
    data = ("--data", str(data_file), "--target", target)
    assert (
        main(["run", "ligett2017", "--task", task, "--out", str(out), *data, *small.split(), *more])
        == 0
    )
    return Store.open(out)


# Each method of each task is a program that takes seconds to compile. CI has each mechanism and
# each rule once, and both tasks.
EVERY = pytest.param((METHODS, METHODS[:3]), marks=pytest.mark.long, id="every")
SOME = pytest.param((METHODS[:3] + METHODS[4:], METHODS[2:3]), id="some")


@pytest.fixture(scope="module", params=[SOME, EVERY])
def methods(request):
    """By task."""
    return dict(zip(("logistic", "ridge"), request.param, strict=True))


@pytest.fixture(scope="module")
def logistic(methods, tmp_path_factory, data_file):
    """Logistic regression."""
    out = tmp_path_factory.mktemp("run") / "logistic"
    return run(data_file, out, "logistic", "late", "--method", *methods["logistic"])


@pytest.fixture(scope="module")
def ridge(methods, tmp_path_factory, data_file):
    """Ridge regression with noise on the optimum, which compiles faster."""
    out = tmp_path_factory.mktemp("run") / "ridge"
    more = ("--method", *methods["ridge"], "--ridge-perturbation", "output")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ligett2017, "plot", lambda store: None)  # the other's figures are looked at
        return run(data_file, out, "ridge", "score", *more)


def read_summary(store):
    return json.loads((store.folder / "summary.json").read_text())


def arrays(store, task, method, alpha):
    outcome = store.read(f"{task}-{method}-{alpha:g}", "outcome")
    return {str(name): outcome[name].values for name in outcome}


def cases_of(method, *stores):
    """Facts and outcomes of each case of a method; some there are."""
    cases = [(case.attributes, store) for store in stores for case in store.cases.values()]
    cases = [(facts, store) for facts, store in cases if facts["method"] == method]
    assert cases
    return [(facts, arrays(store, facts["task"], method, facts["alpha"])) for facts, store in cases]


def excess_at_most(facts):
    """The largest excess risk on the ball."""
    norm = facts["norm_bound"]
    return 2 * norm if facts["task"] == "logistic" else (norm + 1) ** 2


def test_summary_keeps_the_contract(methods, logistic, ridge):
    for store, task in ((logistic, "logistic"), (ridge, "ridge")):
        summary = read_summary(store)
        assert summary["study"] == "ligett2017"
        keys = [(case["method"], case["alpha"]) for case in summary["cases"]]
        assert keys == [(method, alpha) for method in methods[task] for alpha in ALPHAS]
        for case in summary["cases"]:
            assert (case["task"], case["constants"], case["data"]) == (task, "paper", "own.npz")
            assert case["trials"] == TRIALS
            assert list(case["epsilon"]) == ["mean", "q05", "q25", "q50", "q75", "q95"]
            assert list(case["stopped_epsilon"]) == list(case["epsilon"])
            assert list(case["excess_risk"]) == ["mean", "q95", "max"]
            assert set(case["seconds"]) == {"compile", "run"}
            parts = case["test_epsilon"]["mean"] + case["hypothesis_epsilon"]["mean"]
            assert parts == pytest.approx(case["stopped_epsilon"]["mean"], rel=1e-5)
            excess = case["excess_risk"]
            assert excess["mean"] <= excess["max"]
            assert excess["q95"] <= excess["max"]
            if case["method"] != "theory":  # which does not project
                assert 0 < case["norm"]["mean"] <= case["norm_bound"] * (1 + 1e-6)


def test_the_goal_is_missed_no_more_often_than_promised(logistic, ridge):
    """Excess risk above alpha in at most a share gamma of the trials, by exact intervals."""
    share_of_a_tenth = []
    for store in (logistic, ridge):
        for name, case in store.cases.items():
            facts = case.attributes
            outcome = arrays(store, facts["task"], facts["method"], facts["alpha"])
            stopped = outcome["status"] == Status.STOPPED
            excess = np.where(stopped, -outcome["utility"], 0.0)
            if facts["method"] != "theory":  # a promise on the mean
                low, _ = binomial_interval(int(np.sum(excess > facts["alpha"])), TRIALS)
                assert low <= facts["gamma"], name
                missed = int(np.sum(excess > facts["alpha"] / 10))
                share_of_a_tenth.append(binomial_interval(missed, TRIALS)[0])
    # A goal ten times smaller is missed: the check sees it.
    assert max(share_of_a_tenth) > 0.1


def test_doubling_pays_for_every_release_and_every_answer(logistic, ridge):
    """The closed form: `(2^k - 1) eps_1 + k eps_test`."""
    for facts, outcome in cases_of("doubling", logistic, ridge):
        k = outcome["step"].astype(float) + 1
        assert k.min() > 1
        steps = math.ceil(math.log2(4 * facts["theory_epsilon"] * ROWS))
        assert facts["levels"] == steps
        test = k * 2 * excess_at_most(facts) / ROWS * math.log(steps / 0.1) / facts["alpha"]
        releases = (2**k - 1) / ROWS
        for found, right in (("mechanism_epsilon", releases), ("test_epsilon", test)):
            np.testing.assert_allclose(outcome[found], right, rtol=1e-3)
            # No less than what is owed, but for the rounding of the constants.
            assert np.all(outcome[found] >= right * (1 - 1e-6))


def test_noise_reduction_pays_for_its_test_and_its_last_release(logistic, ridge):
    for facts, outcome in cases_of("noise_reduction", logistic, ridge):
        stopped = outcome["status"] == Status.STOPPED
        test = 16 * excess_at_most(facts) / ROWS * math.log(2 * LEVELS / 0.1) / facts["alpha"]
        np.testing.assert_allclose(outcome["test_epsilon"][stopped], test, rtol=1e-3)
        high = 4 * facts["theory_epsilon"]
        grid = np.geomspace(1 / ROWS, high, LEVELS)[outcome["step"]]
        np.testing.assert_allclose(outcome["mechanism_epsilon"], grid, rtol=1e-4)


def test_one_release_at_the_theorys_epsilon_is_good_enough_on_average(logistic, ridge):
    for facts, outcome in cases_of("theory", logistic, ridge):
        assert np.all(outcome["status"] == Status.STOPPED)
        assert np.all(outcome["test_epsilon"] == 0)
        np.testing.assert_allclose(outcome["epsilon"], facts["theory_epsilon"], rtol=1e-5)
        excess = -outcome["utility"]
        error = excess.std(ddof=1) / math.sqrt(TRIALS)
        assert excess.mean() + 4 * error <= facts["alpha"]
        assert excess.min() > -1e-6


def test_differences_between_methods_are_paired(methods, logistic):
    """Trials share their random numbers, and the intervals know it."""
    found = read_summary(logistic)["comparisons"]
    assert found == comparisons(logistic)
    assert len(found) == len(ALPHAS) * (len(methods["logistic"]) - 1)
    for one in found:
        assert one["methods"][0] == "noise_reduction"
        first, second = (
            np.sort(arrays(logistic, "logistic", method, one["alpha"])["epsilon"])[TRIALS // 2 - 1]
            for method in one["methods"]
        )
        assert one["difference"] == pytest.approx(second - first, abs=1e-6)
        low, high = one["interval"]
        assert low <= one["difference"] <= high
        assert (one["cheaper"] is None) == (low <= 0 <= high)
    assert {one["cheaper"] for one in found} - {None, "noise_reduction"}


def test_a_goal_that_is_never_met_costs_infinitely_much():
    """Failures count; means of what was paid are over the trials that stopped."""
    status = np.array([Status.STOPPED, Status.EXHAUSTED, Status.STOPPED, Status.NAN_UTILITY])
    outcome = {
        "utility": np.array([-0.05, -0.5, -0.2, np.nan]),
        "test_epsilon": np.array([1.0, 0.5, 1.0, np.inf]),
        "mechanism_epsilon": np.array([2.0, 9.0, 4.0, 1.0]),
        "norm": np.array([1.0, 3.0, 2.0, np.nan]),
        "step": np.arange(4),
        "status": status,
    }
    found = measured(outcome)
    assert found["test_epsilon"]["mean"] == 1
    assert found["hypothesis_epsilon"]["mean"] == 3
    assert found["excess_risk"] == {"mean": 0.125, "q95": 0.2, "max": 0.2}
    assert found["norm"]["mean"] == 1.5
    # Of all four: one stopped too early, one failed; the exhausted one shows the optimum.
    assert found["missed"]["share"] == 0.5
    nothing = measured(outcome | {"status": np.full(4, Status.EXHAUSTED)})
    assert nothing["missed"]["share"] == 0
    assert nothing["excess_risk"] == {"mean": None, "q95": None, "max": None}
    assert nothing["test_epsilon"] == {"mean": None}


class Held:
    """As much of a store as findings read of one."""

    def __init__(self, facts, outcomes):
        self.outcomes = outcomes
        self.cases = {
            name: Case(name, facts[name], {"outcome": Pass(len(one["status"]), 100, {})})
            for name, one in outcomes.items()
        }

    def read(self, case, _name):
        return xarray.Dataset({key: ("trial", one) for key, one in self.outcomes[case].items()})


def measured(outcome):
    store = Held({"one": {"alpha": 0.1}}, {"one": outcome})
    return measure(store, store.cases["one"])  # pyright: ignore[reportArgumentType]


class Paid(Held):
    """What `comparisons` reads of a store."""

    def __init__(self, **epsilons):
        outcomes, facts = {}, {}
        for name, values in epsilons.items():
            status = np.where(np.isinf(values), Status.EXHAUSTED, Status.STOPPED)
            outcomes[name] = {"epsilon": np.array(values), "status": status}
            facts[name] = {"task": "ridge", "alpha": 0.1, "method": name}
        super().__init__(facts, outcomes)


@pytest.mark.parametrize(("trials", "enough"), [(1, False), (5, False), (6, True), (40, True)])
def test_few_trials_decide_nothing(trials, enough):
    ones = np.ones(trials)
    (found,) = comparisons(Paid(noise_reduction=2 * ones, doubling=3 * ones))  # pyright: ignore
    assert (found["difference"], found["interval"]) == (1.0, [1.0, 1.0])
    assert found["cheaper"] == ("noise_reduction" if enough else None)


def test_what_most_trials_never_reach_is_dearer_than_any_price():
    """Differences with infinite medians are null, the verdict is not; two have none."""
    some, never = np.arange(1.0, 41), np.full(40, np.inf)
    paid = Paid(noise_reduction=never, doubling=some, theory=never)
    doubling, theory = comparisons(paid)  # pyright: ignore
    assert doubling["values"] == [None, 20.0]
    assert (doubling["difference"], doubling["interval"]) == (None, [None, None])
    assert doubling["cheaper"] == "doubling"
    assert (theory["difference"], theory["interval"], theory["cheaper"]) == (None, None, None)
    (turned,) = comparisons(Paid(noise_reduction=some, doubling=never))  # pyright: ignore
    assert turned["cheaper"] == "noise_reduction"
    half = np.where(some < 21, some, np.inf)  # the median is finite, and in many resamples not
    (unclear,) = comparisons(Paid(noise_reduction=some, doubling=half))  # pyright: ignore
    assert unclear["cheaper"] is None


def test_report_and_figures_are_there(logistic):
    text = (logistic.folder / "report.md").read_text()
    for words in (
        "logistic 0.04",
        "BM, RAT",
        "cheapest",
        "4,000 rows",
        "paired",
        "delta = 1e-06",
        "promise is for the mean",
    ):
        assert words in text
    stems = {path.stem for path in (logistic.folder / "figures").glob("*.png")}
    assert {"privacy_loss", "accuracy", "privacy_split", "norms", "cheapest"} <= stems


def test_ridge_statistics_get_the_noise_of_the_paper(data_file, tmp_path):
    """Covariance perturbation: `Lap(4/eps)` on all entries, sensitivity 4; Gaussian noise 2."""
    cases = ligett2017.setups(
        ligett2017.Settings(
            out=tmp_path / "none",
            data=(str(data_file),),
            target="score",
            task=("ridge",),
            alpha=(0.1,),
            levels=20,
        )
    )
    for setup in cases:
        facts, trial = setup.case.attributes, setup.interactions["outcome"]
        brownian = facts["method"].startswith("brownian")
        assert facts["perturbation"] == "covariance"
        assert facts["sensitivity"] == (2 if brownian else 4)
        assert trial.process.shape == ((4 * 5 // 2 if brownian else 16) + 4,)
        right = (facts["norm_bound"] + 1) ** 2 / ROWS
        assert trial.utility.sensitivity == pytest.approx(right, rel=1e-3)
        if facts["method"] == "theory":
            assert trial.schedule.times[0] == pytest.approx(4 / facts["theory_epsilon"], rel=1e-5)
    theory, output = (cases[2].case.attributes[f"theory_epsilon{end}"] for end in ("", "_output"))
    radius = 1 / math.sqrt(0.005)
    right = 4 * math.sqrt(2) * (2 * 2 * radius + 4 * radius**2) / (ROWS * 0.1)
    assert theory == pytest.approx(right)
    right = (radius + 1) * math.sqrt(4 * (1 + 0.02) / (ROWS * 0.005 * 0.1))
    assert output == pytest.approx(right)


def test_copies_make_the_data_larger_and_change_nothing_else(data_file, tmp_path):
    one, three = (
        ligett2017.setups(
            ligett2017.Settings(
                out=tmp_path / "none",
                data=(str(data_file),),
                target="late",
                task=("logistic",),
                method=("noise_reduction",),
                alpha=(0.1,),
                levels=20,
                copies=copies,
            )
        )[0]
        for copies in (1, 3)
    )
    first, second = one.case.attributes, three.case.attributes
    assert (second["rows"], second["data"]) == (3 * ROWS, "own.npz x 3")
    assert second["optimum"] == pytest.approx(first["optimum"], rel=1e-9)
    assert second["sensitivity"] == pytest.approx(first["sensitivity"] / 3, rel=1e-6)
    np.testing.assert_allclose(
        one.interactions["outcome"].value, three.interactions["outcome"].value, atol=1e-6
    )


def test_neighbours_get_the_same_grids_thresholds_and_constants(tmp_path):
    """All but the released value, and how a release is judged, is public."""
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-0.25, 0.25, size=(300, 4)), rng.uniform(-0.9, 0.9, size=300)
    x[0], y[0] = [0.5, 0.3, 0.1, 0.1], 1.0  # has the largest norm in both
    found = []
    for number in range(2):
        path = tmp_path / f"{number}.npz"
        np.savez(path, x=x, y=y)
        settings = ligett2017.Settings(
            out=tmp_path, data=(str(path),), target="y", task=("ridge",), alpha=(0.05,), levels=20
        )
        found.append([setup.interactions["outcome"] for setup in ligett2017.setups(settings)])
        x[5], y[5] = [-0.25, 0.25, 0.25, -0.25], -1.0
    assert len(found[0]) == len(METHODS)
    for one, other in zip(*found, strict=True):
        assert not np.array_equal(one.value, other.value)
        public = ("guarantee", "schedule", "rule", "max_steps")
        jax.tree.map(
            np.testing.assert_array_equal,
            [getattr(one, part) for part in public],
            [getattr(other, part) for part in public],
        )
        for part in ("radius", "sensitivity"):
            assert getattr(one.utility, part) == getattr(other.utility, part)


@pytest.mark.parametrize("constants", ["paper", "code"])
@pytest.mark.parametrize("perturbation", ["covariance", "output"])
def test_theorys_release_is_what_its_theorem_is_for(data_file, tmp_path, perturbation, constants):
    """The minimiser over the ball by covariance perturbation, else the release as it is."""
    settings = ligett2017.Settings(
        out=tmp_path / "none",
        data=(str(data_file),),
        target="score",
        task=("ridge",),
        method=("theory", "doubling"),
        alpha=(0.1,),
        constants=constants,
        ridge_perturbation=perturbation,
    )
    theory, doubling = (
        setup.interactions["outcome"].utility for setup in ligett2017.setups(settings)
    )
    assert doubling.radius == pytest.approx(1 / math.sqrt(0.005))
    assert theory.radius == (doubling.radius if perturbation == "covariance" else np.inf)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": (0.1, 0.1)}, r"alpha = \(0.1, 0.1\): must be without repetition"),
        ({"alpha": (-0.1,)}, r"alpha = -0.1: must be positive and finite"),
        ({"alpha": ()}, r"alpha = \(\): must be at least one value"),
        ({"gamma": 1.0}, r"gamma = 1.0: must be strictly between 0 and 1"),
        ({"levels": 1}, r"levels = 1: must be at least 2"),
        ({"copies": 0}, r"copies = 0: must be at least 1"),
        ({"tight_at": 0.0}, r"tight_at = 0.0: must be positive"),
        ({"data": ("a", "b", "c")}, r"data = .*: must be one value, or one for each of the tasks"),
    ],
)
def test_wrong_settings_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        ligett2017.Settings(out=Path("out"), **options)


def test_a_goal_beyond_the_grid_is_refused_before_anything_is_written(data_file, tmp_path):
    out = tmp_path / "out"
    settings = ligett2017.Settings(
        out=out, data=(str(data_file),), target="late", task=("logistic",), alpha=(1e9,)
    )
    with pytest.raises(ValueError, match=r"alpha = 1000000000.0: must be such that 4 times"):
        ligett2017.run(settings)
    assert not out.exists()


def test_the_published_ridge_program():
    """Its solve, scaling and quarter against NumPy; its excess can be below zero."""
    rng = np.random.default_rng(3)
    x, y = rng.dirichlet(np.ones(4), size=500), rng.uniform(size=500)
    problem = RidgeProblem.fit(x, y, 0.01, row_norm="l1")
    utility = PublishedRidgeUtility.of(problem, 1.0, "matrix")
    gram, moments = problem.statistics
    noisy = gram + rng.laplace(scale=3.0, size=(4, 4)), moments + rng.laplace(scale=3.0, size=4)
    release = jnp.asarray(np.concatenate([noisy[0].ravel(), noisy[1]]))
    found = jax.jit(utility.hypothesis)(release)
    right = np.linalg.solve(noisy[0] + 5.0 * np.eye(4), noisy[1])
    right *= min(1.0, 10.0 / np.linalg.norm(right))
    np.testing.assert_allclose(found, right, rtol=2e-4)

    def risk(theta):
        return 0.25 * np.mean((y - x @ theta) ** 2) + 0.005 * theta @ theta

    excess = risk(right) - risk(problem.optimum)
    np.testing.assert_allclose(-utility.evaluate(jnp.asarray(right)), excess, atol=1e-6)
    assert -utility.evaluate(jnp.asarray(0.99 * problem.optimum)) < 0
    big = jax.jit(utility.hypothesis)(1e4 * (release - 500.0))
    assert np.linalg.norm(big) <= 10 * (1 + 1e-5)


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason="the papers' data are not here")
def test_the_papers_risk_factors(tmp_path):
    """The figures' constants on 100,000 Twitter rows: about 10 and 4.65 in the paper.

    Its rows were others; here 20,000 are taken five times over.
    """
    settings = ligett2017.Settings(
        out=tmp_path / "out",
        task=("ridge",),
        method=("noise_reduction", "doubling"),
        constants="figures",
        alpha=(0.05, 0.075),
        data=("paper",),
        data_dir=SHARED,
        copies=5,
        trials=80,
    )
    store = ligett2017.run(settings)
    factors = {
        (case["method"], case["alpha"]): math.exp(case["epsilon"]["mean"])
        for case in read_summary(store)["cases"]
    }
    assert factors["noise_reduction", 0.05] == pytest.approx(10.0, rel=0.15)
    assert factors["noise_reduction", 0.075] == pytest.approx(4.65, rel=0.15)
    for alpha in settings.alpha:
        assert factors["doubling", alpha] > 10 * factors["noise_reduction", alpha]
