"""The report and the figures of Ligett 2017, from invented results."""

import itertools

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from nrjax._base.outcome import Status
from nrjax.papers import ligett2017
from nrjax.papers.ligett2017.curves import by_task, ratios
from nrjax.papers.ligett2017.settings import METHODS
from nrjax.statistics.sample import Sample
from nrjax.study.plotting import STYLES
from tests.invented import bands, check_margin, ends_of, invented, legend_of

COST = dict(zip(METHODS, (1.0, 6.0, None, 0.8, 0.5), strict=True))
STYLE = dict(zip(METHODS, STYLES, strict=True))
ALPHAS = (0.02, 0.05, 0.1, 0.15)
TASKS = ("ridge", "logistic")
FIGURES = ("privacy_loss", "accuracy", "privacy_split", "norms", "cheapest")
SOME_FAIL = {("ridge", "doubling", 0.02): 0.7, ("ridge", "doubling", 0.05): 0.4}
NONE_STOPS = {("ridge", method, alpha): 1.0 for method in METHODS for alpha in ALPHAS}


def labels(task, method, alpha):
    """Return labels of a case, with a theory's epsilon proportional to 1/alpha."""
    data, perturbation, bound, theory, output = {
        "ridge": ("twitter", "covariance", 14.1, 4.0 / alpha, 0.9 / alpha**0.5),
        "logistic": ("kdd99", "output", 16.7, 0.5 / alpha, None),
    }[task]
    delta = 1e-6 if method.startswith("brownian") else 0.0
    facts = {"task": task, "method": method, "alpha": alpha, "goal": -alpha, "delta": delta}
    facts |= {"data": data, "perturbation": perturbation, "constants": "paper", "rows": 20_000}
    facts |= {"theory_epsilon": theory, "theory_epsilon_output": output}
    return facts | {"norm_bound": bound, "optimum_norm": 2.5}


def outcome(facts, trials, failing):
    """Return plausible arrays, with the same random numbers for all methods."""
    rng, method, alpha = np.random.default_rng(0), facts["method"], facts["alpha"]
    luck, number = rng.normal(size=trials), METHODS.index(method)
    mechanism, test = np.full(trials, facts["theory_epsilon"]), np.zeros(trials)
    if method != "theory":
        mechanism = 0.05 / alpha * COST[method] * np.exp(0.3 * luck)
        test = np.full(trials, 0.1 / alpha * COST[method])
    excess = alpha * 0.2 * np.exp(0.4 * luck + number / 8)
    failed = rng.uniform(size=trials) < failing.get((facts["task"], method, alpha), 0.0)
    return {
        "status": np.where(failed, Status.EXHAUSTED, Status.STOPPED).astype("int32"),
        "epsilon": mechanism + test,
        "mechanism_epsilon": mechanism,
        "test_epsilon": test,
        "utility": -excess,
        "excess_risk": excess,
        "norm": 2.5 + number / 3 + 0.02 / alpha * np.abs(luck),
    }


def results_of(
    folder, tasks=TASKS, methods=METHODS, alphas=ALPHAS, trials=40, failing=None, order=None
):
    """Return results with shares of `failing` trials, by task, method and alpha.

    `order` permutes the trials of the last method.
    """
    cases = {}
    for task, method, alpha in itertools.product(tasks, methods, alphas):
        facts = labels(task, method, alpha)
        arrays = outcome(facts, trials, failing or {})
        if order is not None and method == METHODS[-1]:
            arrays = {name: values[order] for name, values in arrays.items()}
        cases[f"{task}-{method}-{alpha:g}"] = facts, arrays
    return invented(folder, cases, ligett2017.reporting)


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """Return results of both tasks and all methods, in which some trials do not stop."""
    return results_of(tmp_path_factory.mktemp("five"), failing=SOME_FAIL)


@pytest.fixture(scope="module")
def figures(five):
    return five.plot()


def read(results, task, method, alpha, variable):
    """Return a variable over the trials that stopped, or all stopping epsilons."""
    arrays = results[f"{task}-{method}-{alpha:g}"]
    values = arrays[variable].values.astype(float)
    return values if variable == "stopping_epsilon" else values[arrays.stopped.values]


def curve(axes, style, width=1.6):
    """Return finite x and y of a method's line, or of its medians (width 1)."""
    look = style.line, width
    (line,) = [
        line
        for line in axes.lines
        if (line.get_color(), line.get_linewidth()) == look and line.get_linestyle() != "None"
    ]
    y = line.get_ydata()
    return line.get_xdata()[np.isfinite(y)], y[np.isfinite(y)]


def triangles(axes, style, marker="^"):
    """Return positions of a method's triangles at the edge of the panel."""
    look = marker, style.line, False
    return [
        x
        for line in axes.lines
        if (line.get_marker(), line.get_color(), line.get_clip_on()) == look
        for x in line.get_xdata()
    ]


def test_curves_are_statistics_of_the_trials(five, figures):
    assert tuple(figures) == FIGURES
    brownian = ["brownian above threshold (δ = 1e-06)", "brownian reduced (δ = 1e-06)"]
    texts = legend_of(figures["privacy_loss"])
    assert texts[:5] == ["noise reduction", "doubling", "theory", *brownian]
    assert "mean infinite: not all trials stopped" in texts
    split = iter(figures["privacy_split"].axes)
    for column, task in enumerate(TASKS):
        loss, factor = figures["privacy_loss"].axes[column::2]
        risk, _, largest = figures["accuracy"].axes[column::2]
        norms = figures["norms"].axes[column]
        assert loss.get_title().startswith(f"{task} on {labels(task, 'theory', 1.0)['data']}, ")
        drawn = []
        for method, style in STYLE.items():
            (band,), law = (
                bands(norms, style),
                five.distribution_of(f"{task}-{method}-0.15", "stopped_norm"),
            )
            np.testing.assert_allclose(ends_of(band)[0.15], law.mean_interval(), rtol=1e-6)
            drawn += [(norms, method, "norm", np.mean, style)]
            drawn += [(risk, method, "excess_risk", np.mean, style)]
            drawn += [(largest, method, "excess_risk", np.max, style)]
            drawn += [(loss, method, "stopping_epsilon", np.mean, style)]
            drawn += [(factor, method, "stopping_epsilon", risk_factor, style)]
            if method != "theory":
                panel = next(split)
                drawn += [(panel, method, "test_epsilon", np.mean, STYLES[1])]
                drawn += [(panel, method, "mechanism_epsilon", np.mean, STYLES[0])]
        for axes, method, name, statistic, style in drawn:
            values = np.array([statistic(read(five, task, method, a, name)) for a in ALPHAS])
            x, y = curve(axes, style)
            np.testing.assert_allclose(x, np.array(ALPHAS)[np.isfinite(values)])
            np.testing.assert_allclose(y, values[np.isfinite(values)], rtol=2e-4)
        wide = [line.get_ydata() for line in loss.lines if line.get_linewidth() == 4]
        known = [labels(task, "theory", alpha) for alpha in ALPHAS]
        names = ("theory_epsilon", "theory_epsilon_output")[: 2 - column]
        np.testing.assert_allclose(wide, [[one[name] for one in known] for name in names])
        level = [line.get_ydata()[0] for line in norms.lines if line.get_color() == "0.35"]
        assert level == [14.1 if task == "ridge" else 16.7, 2.5]


def risk_factor(epsilon):
    """Return exp(mean epsilon), cut far outside the panel."""
    return np.exp(min(epsilon.mean(), 200)) if np.isfinite(epsilon).all() else np.inf


def test_an_infinite_mean_is_marked_and_the_median_drawn(five, figures):
    ridge, logistic, below, _ = figures["privacy_loss"].axes
    assert triangles(ridge, STYLE["doubling"]) == [0.02, 0.05]
    assert triangles(ridge, STYLE["noise_reduction"]) == []
    assert triangles(logistic, STYLE["doubling"]) == []
    # At 0.02 the median is infinite, too; at 0.1 the line of medians meets that of the means.
    x, y = curve(ridge, STYLE["doubling"], width=1.0)
    np.testing.assert_allclose(x, [0.05, 0.1])
    medians = [np.sort(read(five, "ridge", "doubling", a, "stopping_epsilon"))[19] for a in ALPHAS]
    np.testing.assert_allclose(y, medians[1:3], rtol=1e-6)
    assert medians[0] == np.inf
    assert below.get_ylim() == (1.0, 1e6)


def test_ratios_are_of_medians_and_infinite_where_most_fail(figures):
    ridge, logistic = figures["cheapest"].axes
    for method in ("brownian_above_threshold", "brownian_reduced"):
        for axes in (ridge, logistic):
            np.testing.assert_allclose(curve(axes, STYLE[method])[1], COST[method], rtol=1e-5)
    assert triangles(ridge, STYLE["doubling"]) == [0.02]
    assert curve(ridge, STYLE["doubling"])[0].tolist() == [0.05, 0.1, 0.15]
    (band,) = bands(ridge, STYLE["doubling"])
    low, high = ends_of(band)[0.05]
    assert low < 10
    assert high > ridge.get_ylim()[1]  # infinite: the interval reaches trials that failed
    (reference,) = [line for line in ridge.lines if line.get_color() == "0.35"]
    assert reference.get_ydata()[0] == 1


def test_intervals_of_ratios_are_paired_and_those_of_the_median(five, tmp_path):
    _, runs = by_task(five)
    ratio, low, high = ratios(runs)[-1]
    np.testing.assert_allclose(ratio, 0.5, rtol=1e-5)
    assert ((low <= 0.5) & (high >= 0.5)).all()  # off by at most a rank of each method
    width = high - low
    # Planted: in another order the trials are not paired.
    order = np.random.default_rng(1).permutation(40)
    (shuffled,) = by_task(results_of(tmp_path, ("logistic",), order=order))
    _, low, high = ratios(shuffled)[-1]
    assert (high - low > 2 * width).all()
    # The theory's epsilon is constant, so only noise reduction's median varies.
    _, low, high = ratios(runs)[METHODS.index("theory") - 1]
    epsilon = read(five, "logistic", "noise_reduction", ALPHAS[0], "stopping_epsilon")
    ends = 0.5 / ALPHAS[0] / np.array(Sample(epsilon).quantile_interval(0.5))
    np.testing.assert_allclose([high[0], low[0]], ends, rtol=1e-6)
    assert high[0] > 1.03 * low[0]


EXTREMES = {
    "one alpha": {"alphas": (0.05,), "failing": SOME_FAIL},
    "one trial": {"trials": 1, "alphas": ALPHAS[:2]},
    "theory alone": {"methods": ("theory",), "alphas": ALPHAS[:3]},
    "none stops": {"alphas": ALPHAS[:2], "failing": NONE_STOPS},
    # Their exponentials overflow.
    "beyond the panel": {"methods": METHODS[:3], "alphas": (1e-6, 1e-5), "trials": 3},
    "noise reduction fails": {
        "methods": METHODS[:2],
        "alphas": (0.02, 0.1),
        "failing": {("ridge", "noise_reduction", 0.02): 1.0},
    },
}
MISSING = {"theory alone": {"cheapest", "privacy_split"}}
QUICK = ("one trial", "theory alone")


@pytest.mark.parametrize(
    "which",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in EXTREMES],
)
def test_incomplete_runs_are_drawn_whole_and_without_a_warning(tmp_path, which):
    figures = results_of(tmp_path, ("ridge",), **EXTREMES[which]).plot()
    for figure in figures.values():
        check_margin(figure)
    assert set(figures) == set(FIGURES) - MISSING.get(which, set())
    notes = {
        text.get_text() for figure in figures.values() for a in figure.axes for text in a.texts
    }
    above, below = figures["privacy_loss"].axes
    if which == "none stops":
        assert notes == {"no trial stopped", "all medians are infinite"}
    elif which == "beyond the panel":
        assert notes == {"nothing up to a million"}
        assert below.get_ylim() == (1.0, 1e6)
    elif which == "noise reduction fails":  # ratios of 0 are at the lower edge
        (axes,) = figures["cheapest"].axes
        assert triangles(axes, STYLE["doubling"], "v") == [0.02]
        assert triangles(axes, STYLE["doubling"]) == []
    elif which == "one alpha":
        bars = [one for one in above.collections if isinstance(one, LineCollection)]
        # Bars instead of bands, and none where the mean is infinite.
        assert [len(bar.get_segments()) for bar in bars] == [1, 0, 1, 1, 1]
        assert triangles(above, STYLE["doubling"]) == [0.05]


def test_failures_count_as_missed_and_means_are_over_the_trials_that_stopped(tmp_path):
    utility = np.array([-0.05, -0.5, -0.2, np.nan])
    outcome = {
        "utility": utility,
        "excess_risk": -utility,
        "test_epsilon": np.array([1.0, 0.5, 1.0, np.inf]),
        "mechanism_epsilon": np.array([2.0, 9.0, 4.0, 1.0]),
        "norm": np.array([1.0, 3.0, 2.0, np.nan]),
    }
    outcome["epsilon"] = outcome["test_epsilon"] + outcome["mechanism_epsilon"]
    statuses = {
        "some": [Status.STOPPED, Status.EXHAUSTED, Status.STOPPED, Status.NAN_UTILITY],
        "none": [Status.EXHAUSTED] * 4,
    }
    cases = {
        name: ({"goal": -0.1}, outcome | {"status": np.array(status, "int32")})
        for name, status in statuses.items()
    }
    results = invented(tmp_path, cases)
    some, none = (ligett2017.reporting.measure(results, name) for name in statuses)
    assert some["test_epsilon"]["mean"] == 1
    assert some["hypothesis_epsilon"]["mean"] == 3
    assert some["excess_risk"] == {"mean": 0.125, "q95": 0.2, "max": 0.2}
    assert some["norm"]["mean"] == 1.5
    # One of four stopped too early and one failed; the exhausted one falls back on the optimum.
    assert some["missed"]["share"] == 0.5
    assert none["missed"]["share"] == 0
    assert none["excess_risk"] == {"mean": None, "q95": None, "max": None}
    assert none["test_epsilon"] == {"mean": None}


@pytest.fixture
def compare(tmp_path_factory):
    """Return a function that compares methods by their epsilons in each trial."""

    def comparisons(**epsilons):
        cases = {}
        for method, values in epsilons.items():
            status = np.where(np.isinf(values), Status.EXHAUSTED, Status.STOPPED).astype("int32")
            arrays = {"epsilon": values, "status": status, "utility": -np.ones(len(values))}
            cases[method] = ({"task": "ridge", "alpha": 0.1, "method": method}, arrays)
        results = invented(tmp_path_factory.mktemp("paid"), cases)
        return ligett2017.reporting.findings(results)["comparisons"]

    return comparisons


def test_few_trials_decide_nothing(compare):
    for trials, end, cheaper in ((1, None, None), (5, None, None), (6, 1.0, "noise_reduction")):
        ones = np.ones(trials)
        (one,) = compare(noise_reduction=2 * ones, doubling=3 * ones)
        assert (one["difference"], one["interval"]) == (1.0, [end, end])
        assert one["cheaper"] == cheaper


def test_infinite_medians_are_more_expensive_than_finite_ones(compare):
    """Their difference is null but not the verdict, unless both are infinite."""
    some, never = np.arange(1.0, 41), np.full(40, np.inf)
    doubling, theory = compare(noise_reduction=never, doubling=some, theory=never)
    assert doubling["values"] == [None, 20.0]
    assert (doubling["difference"], doubling["interval"]) == (None, [None, None])
    assert doubling["cheaper"] == "doubling"
    assert (theory["difference"], theory["interval"], theory["cheaper"]) == (None, None, None)
    (reverse,) = compare(noise_reduction=some, doubling=never)
    assert reverse["cheaper"] == "noise_reduction"
    half = np.where(some < 21, some, np.inf)  # the median is infinite in many resamples only
    (unclear,) = compare(noise_reduction=some, doubling=half)
    assert unclear["cheaper"] is None
