"""Figures of `ligett2017` show what the store holds, whatever a run leaves out."""

import dataclasses
import io
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("xarray")
import jax.numpy as jnp
import matplotlib
import matplotlib.image
from matplotlib.collections import LineCollection, PolyCollection

from nrjax import plots
from nrjax.plots.common import STYLES, mean_with_ends
from nrjax.plots.ligett_runs import Remembering, by_task, ratios
from nrjax.studies.distribution import Sample
from nrjax.studies.store import Case, Pass, Store, Variable
from nrjax.types import Status

METHODS = ("noise_reduction", "doubling", "theory", "brownian_above_threshold", "brownian_reduced")
COST = {"noise_reduction": 1.0, "doubling": 6.0, "brownian_above_threshold": 0.8}
COST |= {"brownian_reduced": 0.5}
ALPHAS = (0.02, 0.05, 0.1, 0.15, 0.2)
FIGURES = ("privacy_loss", "accuracy", "privacy_split", "norms", "cheapest")
VARIABLES = {name: Variable("int32") for name in ("step", "status")}
VARIABLES |= {
    name: Variable(jnp.result_type(float).name)
    for name in ("epsilon", "mechanism_epsilon", "test_epsilon", "utility", "norm")
}


def facts(task, method, alpha, trials):
    """Attributes of a case; the theory's epsilon falls as 1/alpha."""
    ridge = task == "ridge"
    return {
        "task": task,
        "method": method,
        "constants": "paper",
        "alpha": alpha,
        "data": "twitter" if ridge else "kdd99",
        "trials": trials,
        "rows": 20_000 if ridge else 100_000,
        "dimension": 77 if ridge else 38,
        "regularisation": 0.005,
        "gamma": 0.1,
        "delta": 1e-6 if method.startswith("brownian") else 0.0,
        "perturbation": "covariance" if ridge else "output",
        "optimum": 0.01,
        "optimum_norm": 2.5,
        "norm_bound": 14.1 if ridge else 16.7,
        "theory_epsilon": (4.0 if ridge else 0.5) / alpha,
        "theory_epsilon_output": 0.9 / alpha**0.5 if ridge else None,
    }


def outcome(case, failing, rng):
    """Numbers of the study's kind, the same luck for all methods."""
    method, alpha, trials = (case[name] for name in ("method", "alpha", "trials"))
    luck = rng.normal(size=trials)
    if method == "theory":
        mechanism, test = np.full(trials, case["theory_epsilon"]), np.zeros(trials)
    else:
        mechanism = 0.05 / alpha * COST[method] * np.exp(0.3 * luck)
        test = np.full(trials, 0.1 / alpha * COST[method])
    failed = rng.uniform(size=trials) < failing.get((case["task"], method, alpha), 0.0)
    return {
        "step": np.arange(trials),
        "status": np.where(failed, Status.EXHAUSTED, Status.STOPPED),
        "epsilon": mechanism + test,
        "mechanism_epsilon": mechanism,
        "test_epsilon": test,
        "utility": -alpha * 0.2 * np.exp(0.4 * luck + METHODS.index(method) / 8),
        "norm": 2.5 + METHODS.index(method) / 3 + 0.02 / alpha * np.abs(luck),
    }


def ligett_store(
    folder, tasks=("ridge", "logistic"), methods=METHODS, alphas=ALPHAS, trials=40, failing=None
):
    """A finished run; `failing`: the share of trials that do not stop, by task, method, alpha."""
    made = [facts(task, method, a, trials) for task in tasks for method in methods for a in alphas]
    layout = {"outcome": Pass(trials, trials, VARIABLES)}
    cases = [Case(f"{c['task']}-{c['method']}-{c['alpha']:g}", c, layout) for c in made]
    store = Store.create(folder, {}, cases)
    with store.writer() as writer:
        for case in cases:
            found = outcome(case.attributes, failing or {}, np.random.default_rng(0))
            chunk = {name: found[name].astype(v.dtype) for name, v in VARIABLES.items()}
            writer.write(case.name, "outcome", 0, chunk)
    return store


SOME_FAIL = {("ridge", "doubling", 0.02): 0.7, ("ridge", "doubling", 0.05): 0.4}
NONE_STOPS = {("ridge", method, alpha): 1.0 for method in METHODS for alpha in ALPHAS}
STYLE = dict(zip(METHODS, STYLES, strict=True))


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """Both tasks, all methods; some trials of doubling on ridge do not stop."""
    folder = tmp_path_factory.mktemp("five")
    return Remembering(ligett_store(folder, alphas=ALPHAS[:4], failing=SOME_FAIL))


def read(store, task, method, alpha, variable):
    """A variable over the trials that stopped, and all total epsilons, in double precision."""
    found = store.read(f"{task}-{method}-{alpha:g}", "outcome")
    stopped = found.status.values == Status.STOPPED
    if variable == "total":
        return np.where(stopped, found.epsilon.values.astype(float), np.inf)
    return found[variable].values.astype(float)[stopped]


def curve(axes, style, width=1.6):
    """The line of a method, or of its medians (width 1), as x and y without gaps."""
    (line,) = [
        line
        for line in axes.lines
        if line.get_color() == style.line
        and line.get_linewidth() == width
        and line.get_linestyle() != "None"
    ]
    y = line.get_ydata()
    return line.get_xdata()[np.isfinite(y)], y[np.isfinite(y)]


def band(axes, style):
    """Lower and upper end of a method's band by x."""
    (found,) = [
        one
        for one in axes.collections
        if isinstance(one, PolyCollection)
        and np.allclose(one.get_facecolor()[0, :3], matplotlib.colors.to_rgb(style.line))
    ]
    points = np.concatenate([path.vertices for path in found.get_paths()])
    return {
        x: (points[points[:, 0] == x, 1].min(), points[points[:, 0] == x, 1].max())
        for x in np.unique(points[:, 0])
    }


def triangles(axes, style, marker="^"):
    """Where a method's triangles are; none of its own markers."""
    return [
        x
        for line in axes.lines
        if line.get_marker() == marker and line.get_color() == style.line and not line.get_clip_on()
        for x in line.get_xdata()
    ]


def saved(figure):
    """The picture, shape (height, width, 3)."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=60)
    data.seek(0)
    return matplotlib.image.imread(data)[..., :3]


def test_writes_all_figures_the_same_each_time_whatever_the_users_style(tmp_path):
    store = ligett_store(tmp_path, ("logistic",), METHODS[:2], alphas=(0.05,), trials=5)
    paths = plots.plot_ligett(store)
    assert [path.name for path in paths] == [f"{n}.{s}" for n in FIGURES for s in ("png", "svg")]
    first = [path.read_bytes() for path in paths]
    assert all(data.startswith((b"\x89PNG", b"<?xml")) for data in first)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        again = [path.read_bytes() for path in plots.plot_ligett(Store.open(tmp_path))]
    assert first == again


def test_titles_and_axes_say_what_is_drawn(five):
    loss = plots.privacy_loss(five)
    heads = [
        "ridge on twitter, 20,000 rows, 40 trials\ncovariance perturbation, constants: paper",
        "logistic on kdd99, 100,000 rows, 40 trials\noutput perturbation, constants: paper",
    ]
    assert [axes.get_title() for axes in loss.axes] == [*heads, "", ""]
    for axes, what in zip(
        loss.axes, ["mean ex-post ε (nat)"] * 2 + ["risk factor exp(mean ε)"] * 2, strict=True
    ):
        assert axes.get_ylabel() == what
        assert axes.get_xlabel() == "requested excess risk \N{GREEK SMALL LETTER ALPHA}"
        assert axes.get_yscale() == "log"
    texts = [text.get_text() for text in loss.legends[0].get_texts()]
    assert texts[:5] == [
        "noise reduction",
        "doubling",
        "theory",
        "brownian above threshold (δ = 1e-06)",
        "brownian reduced (δ = 1e-06)",
    ]
    assert "mean infinite: not all trials stopped" in texts
    split = plots.privacy_split(five)
    assert [axes.get_title().split("\n")[-1] for axes in split.axes] == 2 * [
        *texts[:2],
        *texts[3:5],
    ]


def test_privacy_loss_is_the_mean_over_all_trials_with_its_interval(five):
    figure = plots.privacy_loss(five)
    for column, task in enumerate(("ridge", "logistic")):
        above, below = figure.axes[column], figure.axes[2 + column]
        for method in METHODS:
            samples = {a: read(five, task, method, a, "total") for a in ALPHAS[:4]}
            samples = {a: s for a, s in samples.items() if np.isfinite(s).all()}
            assert len(samples) == (2 if (task, method) == ("ridge", "doubling") else 4)
            means = [sample.mean() for sample in samples.values()]
            x, y = curve(above, STYLE[method])
            np.testing.assert_allclose(x, list(samples))
            np.testing.assert_allclose(y, means, rtol=1e-5)
            x, y = curve(below, STYLE[method])
            np.testing.assert_allclose(np.log(y), np.minimum(means, 200), rtol=1e-5)
            ends = band(above, STYLE[method])
            for alpha in samples:
                # 2.0227 is Student's 97.5 % point at 39 degrees of freedom, from a table.
                half = 2.0227 * samples[alpha].std(ddof=1) / np.sqrt(40)
                low, high = ends[alpha]
                np.testing.assert_allclose(high - low, 2 * half, rtol=1e-3, atol=1e-4)


def test_closed_forms_are_those_of_the_store(five):
    for axes, theory in zip(plots.privacy_loss(five).axes, ("ridge", "logistic"), strict=False):
        wide = [line.get_ydata() for line in axes.lines if line.get_linewidth() == 4]
        known = [five.cases[f"{theory}-doubling-{a:g}"].attributes for a in ALPHAS[:4]]
        names = ("theory_epsilon", "theory_epsilon_output")[: 2 if theory == "ridge" else 1]
        np.testing.assert_allclose(wide, [[one[name] for one in known] for name in names])


def test_an_infinite_mean_is_said_and_the_median_drawn(five):
    figure = plots.privacy_loss(five)
    ridge, logistic = figure.axes[:2]
    assert triangles(ridge, STYLE["doubling"]) == [0.02, 0.05]
    assert triangles(ridge, STYLE["noise_reduction"]) == []
    assert triangles(logistic, STYLE["doubling"]) == []
    # At 0.02 the median is infinite too; at 0.1 the line of medians meets that of the means.
    x, y = curve(ridge, STYLE["doubling"], width=1.0)
    np.testing.assert_allclose(x, [0.05, 0.1])
    ordered = [np.sort(read(five, "ridge", "doubling", alpha, "total")) for alpha in x]
    np.testing.assert_allclose(y, [one[19] for one in ordered], rtol=1e-6)
    assert np.sort(read(five, "ridge", "doubling", 0.02, "total"))[19] == np.inf
    assert figure.axes[2].get_ylim() == (1.0, 1e6)


def test_accuracy_is_that_of_the_trials_that_stopped(five):
    figure = plots.accuracy(five)
    rank = -(-95 * 40 // 100)
    for task, column in (("ridge", 0), ("logistic", 1)):
        panels = figure.axes[column::2]
        for method in METHODS:
            risks = [-read(five, task, method, alpha, "utility") for alpha in ALPHAS[:4]]
            whole = [i for i, risk in enumerate(risks) if risk.size == 40]
            drawn = [curve(axes, STYLE[method])[1] for axes in panels]
            np.testing.assert_allclose(drawn[0], [risk.mean() for risk in risks], rtol=1e-5)
            for i in whole:
                np.testing.assert_allclose(drawn[1][i], np.sort(risks[i])[rank - 1], rtol=1e-6)
            np.testing.assert_allclose(drawn[2], [risk.max() for risk in risks], rtol=1e-6)
        for axes in panels:
            assert axes.get_xscale() == axes.get_yscale() == "log"
            (requested,) = [line for line in axes.lines if line.get_color() == "0.35"]
            np.testing.assert_array_equal(requested.get_xdata(), requested.get_ydata())
            low, high = axes.get_ylim()
            assert low < min(curve(axes, style)[1].min() for style in STYLES)
            assert high > max(ALPHAS[:4])
    # Empty markers where some trials did not stop, and there only.
    empty = {
        tuple(line.get_xdata())
        for line in figure.axes[0].lines
        if line.get_marker() == "s" and line.get_markerfacecolor() == "white"
    }
    assert empty == {(0.02, 0.05)}


def test_the_split_is_that_of_the_trials_that_stopped(five):
    figure = plots.privacy_split(five)
    tested = [method for method in METHODS if method != "theory"]
    cases = [(task, method) for task in ("ridge", "logistic") for method in tested]
    for axes, (task, method) in zip(figure.axes, cases, strict=True):
        for name, style in (("test_epsilon", STYLES[1]), ("mechanism_epsilon", STYLES[0])):
            means = [read(five, task, method, alpha, name).mean() for alpha in ALPHAS[:4]]
            np.testing.assert_allclose(curve(axes, style)[1], means, rtol=1e-5)


def test_norms_stand_beside_the_optimum_and_the_bound(five):
    for axes, task in zip(plots.norms(five).axes, ("ridge", "logistic"), strict=True):
        for method in METHODS:
            means = [read(five, task, method, alpha, "norm").mean() for alpha in ALPHAS[:4]]
            np.testing.assert_allclose(curve(axes, STYLE[method])[1], means, rtol=1e-5)
        level = [line.get_ydata()[0] for line in axes.lines if line.get_color() == "0.35"]
        assert level == [14.1 if task == "ridge" else 16.7, 2.5]
        assert axes.get_ylim()[1] > level[0]


def test_ratios_are_of_medians_and_infinite_where_most_fail(five):
    ridge, logistic = plots.cheapest(five).axes
    for method in ("brownian_above_threshold", "brownian_reduced"):
        for axes in (ridge, logistic):
            np.testing.assert_allclose(curve(axes, STYLE[method])[1], COST[method], rtol=1e-5)
    assert triangles(ridge, STYLE["doubling"]) == [0.02]
    assert curve(ridge, STYLE["doubling"])[0].tolist() == [0.05, 0.1, 0.15]
    low, high = band(ridge, STYLE["doubling"])[0.05]
    assert low < 10
    assert high > ridge.get_ylim()[1]  # many resamples have an infinite median
    (reference,) = [line for line in ridge.lines if line.get_color() == "0.35"]
    assert reference.get_ydata()[0] == 1


def test_intervals_of_ratios_are_paired_and_those_of_a_plain_bootstrap(five):
    _, runs = by_task(five)
    _, (ratio, low, high) = ratios(runs)["brownian_reduced"]
    np.testing.assert_allclose([ratio, low, high], 0.5, rtol=1e-5)
    # Control: the same numbers in another order of trials are not paired.
    order = np.random.default_rng(1).permutation(40)

    class Shuffled(Remembering):
        def read(self, case, name, **options):
            return super().read(case, name, **options).isel(trial=order)

    runs[4] = dataclasses.replace(runs[4], store=Shuffled(five))
    _, (_, low, high) = ratios(runs)["brownian_reduced"]
    assert (high > 1.03 * low).all()
    # The theory's epsilon is a constant, so only noise reduction's median varies.
    alpha, (_, low, high) = ratios(runs)["theory"]
    rng = np.random.default_rng(2)
    epsilon = read(five, "logistic", "noise_reduction", alpha[0], "total")
    medians = np.sort(rng.choice(epsilon, (4000, 40)), axis=1)[:, 19]
    ends = 0.5 / alpha[0] / np.quantile(medians, [0.975, 0.025])
    np.testing.assert_allclose([low[0], high[0]], ends, rtol=0.02)
    assert high[0] > 1.03 * low[0]


EXTREMES = {
    "one alpha": {"alphas": (0.05,), "failing": SOME_FAIL},
    "one trial": {"trials": 1, "alphas": ALPHAS[:2]},
    "one method": {"methods": ("doubling",), "alphas": ALPHAS[:3], "failing": SOME_FAIL},
    "theory alone": {"methods": ("theory",), "alphas": ALPHAS[:3]},
    "none stops": {"alphas": ALPHAS[:2], "failing": NONE_STOPS},
}
MISSING = {"one method": {"cheapest"}, "theory alone": {"cheapest", "privacy_split"}}


@pytest.mark.parametrize("which", EXTREMES)
def test_whatever_a_run_leaves_out_is_drawn_without_a_warning(tmp_path, monkeypatch, which):
    """And a margin of the picture's edge is blank: nothing is cut off."""
    store = ligett_store(tmp_path, ("ridge",), **EXTREMES[which])
    figures = {}

    def keep(store, name, figure):
        picture = saved(figure)
        edges = (picture[:2], picture[-2:], picture[:, :2], picture[:, -2:])
        assert [bool((edge == 1).all()) for edge in edges] == [True] * 4, name
        figures[name] = figure
        return []

    monkeypatch.setattr("nrjax.plots.common.save", keep)
    plots.plot_ligett(store)
    assert set(figures) == set(FIGURES) - MISSING.get(which, set())
    said = {text.get_text() for figure in figures.values() for a in figure.axes for text in a.texts}
    if which == "none stops":
        assert said == {"no trial stopped", "all medians are infinite"}
    elif which == "one alpha":
        axes = figures["privacy_loss"].axes[0]
        bars = [one for one in axes.collections if isinstance(one, LineCollection)]
        # Bars instead of bands, and none where the mean is infinite.
        assert [len(bar.get_segments()) for bar in bars] == [1, 0, 1, 1, 1]
        assert triangles(axes, STYLE["doubling"]) == [0.05]


def test_risk_beyond_the_panel_is_said(tmp_path):
    """Exponentials of what no float holds, too."""
    store = ligett_store(tmp_path, ("ridge",), METHODS[:3], alphas=(1e-6, 1e-5), trials=3)
    figure = plots.privacy_loss(store)
    saved(figure)
    below = figure.axes[1]
    assert below.get_ylim() == (1.0, 1e6)
    assert [text.get_text() for text in below.texts] == ["nothing up to a million"]


def test_where_noise_reduction_fails_ratios_are_at_the_lower_edge(tmp_path):
    failing = {("ridge", "noise_reduction", 0.02): 1.0}
    options = {"alphas": (0.02, 0.1), "failing": failing}
    figure = plots.cheapest(ligett_store(tmp_path, ("ridge",), METHODS[:2], **options))
    saved(figure)
    assert triangles(figure.axes[0], STYLE["doubling"], "v") == [0.02]
    assert triangles(figure.axes[0], STYLE["doubling"]) == []


def test_every_pass_is_read_from_disk_once(five, monkeypatch):
    store, reads = Remembering(Store.open(five.folder)), []
    read_one = Store.read
    monkeypatch.setattr(Store, "read", lambda *a, **k: reads.append(a[1]) or read_one(*a, **k))
    for _ in range(2):
        for runs in by_task(store):
            for one in runs:
                one.epsilons()
    assert sorted(reads) == sorted(store.cases)


def test_the_mean_with_ends_covers_what_is_undefined():
    # 12.706 is Student's 97.5 % point at 1 degree of freedom.
    mean, low, high = mean_with_ends(Sample(np.array([1.0, 3.0], "float32")))
    np.testing.assert_allclose([mean, low, high], [2, 2 - 12.706, 2 + 12.706], rtol=1e-4)
    for values, expected in (([5.0], 5.0), ([1.0, np.inf], np.inf), ([], np.nan)):
        mean, low, high = mean_with_ends(Sample(np.array(values)))
        np.testing.assert_array_equal([mean, low, high], [expected, np.nan, np.nan])


if __name__ == "__main__":  # to look at them: python -m tests.test_plots_ligett2017 FOLDER
    home, many = Path(sys.argv[1]), tuple(np.arange(1, 41) / 200)
    worse = {("ridge", "noise_reduction", a): 0.6 for a in many[:4]}
    worse |= {("ridge", "doubling", a): 0.5 - a for a in many[:30]}
    worse |= {("logistic", "brownian_reduced", a): 0.02 for a in many[5:9]}
    for name, options in {
        "five": {"failing": SOME_FAIL},
        "one-alpha": {"alphas": (0.05,), "failing": SOME_FAIL},
        "one-trial": {"trials": 1, "tasks": ("ridge",)},
        "one-method": {"methods": ("doubling",), "failing": SOME_FAIL},
        "none": {
            "tasks": ("ridge",),
            "failing": {("ridge", m, a): 1.0 for m in METHODS for a in ALPHAS},
        },
        "full": {"alphas": many, "failing": worse},
    }.items():
        print(*plots.plot_ligett(ligett_store(home / name, **options)), sep="\n")
