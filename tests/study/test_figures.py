"""The standard figures show all results, are legible in grey, and are drawn to the same bytes."""

import itertools

import matplotlib
import matplotlib.colors
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy import stats

import nrjax
from nrjax._base.outcome import Status
from nrjax.statistics.sample import Sample
from nrjax.study import figures
from nrjax.study.distribution_plots import fitting_edges
from nrjax.study.plotting import (
    STYLES,
    draw_curve,
    linear_scale,
    log_scale,
    mean_curve,
    mechanism_styles,
    quantile_curve,
)
from tests.invented import bands, check_margin, check_margin_sees, ends_of, invented, legend_of
from tests.problems import scalar
from tests.study import cheap

EPSILON = "stopping ε (nat)"
AXES = {  # labels of each figure's axes; the last two figures need the trials themselves
    "epsilon_distribution": ("", EPSILON),
    "epsilon_cdf": (EPSILON, "trials that stopped at ε or less (%)"),
    "epsilon_split": ("", "mean ε of the trials that stopped (nat)"),
    "utility_at_stop": ("utility at the stop", "stopped trials at or below (%)"),
    "last_step": ("number of the last step, from 0", "trials that ended by then (%)"),
    "paired_differences": ("difference of stopping ε per trial (nat)", "trials at or below (%)"),
    "loss_against_stated": ("stated ε of the releases (nat)", "realised loss (nat)"),
}


@pytest.fixture(scope="module", params=["trials", pytest.param("summary", marks=pytest.mark.long)])
def results(request, tmp_path_factory):
    """Return results of cases that stop early, late and never, and of one without a guarantee."""
    parts = scalar(np.geomspace(100.0, 0.01, 20)) | {"shift": 1.0}
    cases = {
        "cheap": parts,
        "dear": parts | {"rule": nrjax.PublicThreshold(-0.05)},
        "never": parts | {"rule": nrjax.PublicThreshold(1.0)},
        "bare": parts | {"guarantee": None},
    }
    study = nrjax.Study("s", {name: nrjax.Interaction(**case) for name, case in cases.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nrjax.Results, "write_figures", lambda self, writer: None)
        folder = tmp_path_factory.mktemp("run")
        return study.run(folder, trials=300, keep=request.param, progress=False)


def drawn(results, name):
    return results.plot(name)[name]


def test_each_figure_is_drawn_from_trials_or_summaries_and_labelled(results):
    names = list(AXES) if results.keeps_trials("cheap") else list(AXES)[:-2]
    assert set(figures.standard(results)) == set(names)
    for name in names:
        figure = drawn(results, name)
        (axes,) = figure.axes
        assert (axes.get_xlabel().split("\n")[0], axes.get_ylabel()) == AXES[name]
        assert axes.get_title() == "s\n300 trials"
        assert legend_of(figure)
        check_margin(figure)  # draws it
        assert axes.get_window_extent().height > 1.5 * figure.dpi


def test_the_distribution_has_medians_and_the_share_that_did_not_stop(results):
    (axes,) = drawn(results, "epsilon_distribution").axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    firsts = {case["case"]: case["stopped_at_first_step"] for case in results.summary()["cases"]}
    for case, label in zip(results, labels[:3], strict=False):
        epsilon = results.distribution(case)
        share = 100 * (1 - epsilon.finite)
        assert 0 < share < 100 if case == "dear" else share == 100 * (case == "never")
        ends = f"{share:.3g} % did not stop" if share else "all stopped"
        amounts = [
            f"{epsilon.order_statistic(rank)[1]:.3g}".replace("inf", "∞")
            for rank in (150, 270, 285)
        ]
        first = firsts[case]
        ends += f"\nfirst level: {100 * first:.3g} %" if first >= 0.05 else ""
        quantiles = "median {}\n90 %: {}\n95 %: {}".format(*amounts)
        assert label == f"{case}\n{quantiles}\n{ends}"
        low, high = axes.get_ylim()
        assert all(low < point < high for point in epsilon.points())
    assert labels[3] == "bare\nno guarantee:\nε not defined"
    # Intervals of the quartiles: ranks of 300 trials by SciPy's binomial distribution.
    bars = [lines for lines in axes.collections if isinstance(lines, LineCollection)]
    ends = [seg[:, 1] for bar in bars for seg in bar.get_segments() if np.ptp(seg[:, 0]) == 0]
    epsilon, expected = results.distribution("cheap"), []
    for q in (0.25, 0.5, 0.75):
        ranks = stats.binom(300, q).ppf(0.025), stats.binom(300, q).isf(0.025) + 1
        expected.append([epsilon.order_statistic(int(r))[i] for i, r in enumerate(ranks)])
    np.testing.assert_allclose(ends[:3], expected)


def test_functions_are_shares_of_all_trials_with_their_bands(results):
    """Steps have the band of Dvoretzky, Kiefer and Wolfowitz, up to the share that stopped."""
    figure = drawn(results, "epsilon_cdf")
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == ["cheap", "dear", "never"]
    assert axes.get_ylim() == (0, 100)
    assert legend_of(figure) == [*lines, "simultaneous 95 % band (DKW)"]
    for (case, line), band in zip(lines.items(), bands(axes), strict=True):
        epsilon = results.distribution(case)
        x, share = line.get_data()
        assert line.get_drawstyle() == "steps-post"
        np.testing.assert_allclose(share, 100 * epsilon.below(x), atol=1e-9)
        if results.keeps_trials(case):
            expected = [np.mean(results.values(case) <= point) for point in x]
            np.testing.assert_allclose(share, 100 * np.array(expected), atol=1e-9)
        assert (share[0], share[-1]) == (0, pytest.approx(100 * epsilon.finite))
        # Steps rise after the point: there, the band reaches over both levels.
        half, before = 100 * np.sqrt(np.log(40) / 600), np.append(share[0], share[:-1])
        for at, low, high in zip(x, before - half, share + half, strict=True):
            assert ends_of(band)[at] == pytest.approx((max(low, 0), min(high, 100)), abs=1e-6)


def test_bars_are_means_and_labels_say_who_met_the_goal(results):
    figure = drawn(results, "epsilon_split")
    assert legend_of(figure) == ["releases"]  # these tests cost nothing
    (axes,) = figure.axes
    heights = [bar.get_height() for bar in axes.patches]
    means = [
        results.distribution(case, f"stopped_{part}_epsilon").mean
        for case in ("cheap", "dear")
        for part in ("mechanism", "test")
    ]
    np.testing.assert_allclose(heights, means)
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == [
        "cheap",
        "dear\n254 of 300\nstopped",
        "never",
        "bare\nno guarantee:\nε not defined",
    ]
    (axes,) = drawn(results, "utility_at_stop").axes
    stated = axes.get_xlabel().split("\n")[1:]
    assert stated == [
        "goal met, of all trials:",
        "100 % of cheap, 84.7 % of dear,",
        "100 % of bare",
    ]
    assert results.summary()["cases"][1]["met"] == pytest.approx(254 / 300)
    goals = [line.get_xdata()[0] for line in axes.lines if line.get_label() == "goal"]
    np.testing.assert_allclose(goals[:2], [-0.5, -0.05])


def test_each_number_of_custom_trials_has_a_panel(tmp_path):
    study = nrjax.Study("s", {name: cheap.Walk(np.float32(n)) for n, name in enumerate("ab")})
    figure = drawn(study.run(tmp_path, trials=50, progress=False), "quantities")
    assert [axes.get_xlabel() for axes in figure.axes] == ["end", "rises", "high"]
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2]
    assert legend_of(figure)[:2] == ["a", "b"]
    assert [path.name for path in (tmp_path / "figures").glob("*.png")] == ["quantities.png"]
    check_margin(figure)


@pytest.mark.parametrize("stopped", [2, 0])
def test_mostly_unstopped_trials_have_an_infinite_median(tmp_path, stopped):
    status = np.where(np.arange(5) < stopped, Status.STOPPED, Status.EXHAUSTED).astype("int32")
    ones = dict.fromkeys(("epsilon", "utility", "privacy_loss"), np.ones(5, "float32"))
    arrays = ones | {"status": status, "step": np.arange(1, 6, dtype="int32")}
    few = invented(tmp_path, {"laplace": ({}, arrays)})
    (axes,) = drawn(few, "epsilon_distribution").axes
    (label,) = [label.get_text() for label in axes.get_xticklabels()]
    infinite = "median ∞\n90 %: ∞\n95 %: ∞"
    assert label == f"laplace\n{infinite}\n{100 - 20 * stopped} % did not stop"
    assert "^" in [line.get_marker() for line in axes.lines]
    for panel in (axes, *drawn(few, "epsilon_cdf").axes):
        texts = [text.get_text() for text in panel.texts]
        assert texts == ([] if stopped else ["no trial stopped"])


ORDINARY = np.linspace(-1.0, 1.0, 101)


@pytest.mark.parametrize(
    ("samples", "required", "limits", "outside"),
    [
        ([ORDINARY], [], (-1.06, 1.06), 0),
        ([ORDINARY, np.append(ORDINARY, 30.0)], [], (-1.0, 1.9), 1 / 102),
        ([np.append(ORDINARY, [-30.0, 30.0])], [], (-1.9, 1.9), 2 / 103),
        ([np.append(ORDINARY, np.inf)], [3.0], (-1.12, 3.12), 0),  # infinity is on no axis
        ([np.append(np.zeros(99), 7.0)], [], (-0.21, 7.21), 0),
        ([np.ones(5)], [], (0.5, 1.5), 0),
    ],
    ids=["all", "one far", "two far", "required", "nearly all alike", "all alike"],
)
def test_a_far_trial_does_not_set_the_axis_and_is_counted(samples, required, limits, outside):
    axes = Figure().subplots()
    fraction = linear_scale(axes, [Sample(values) for values in samples], required)
    assert axes.get_xlim() == pytest.approx(limits, abs=0.1)
    assert fraction == pytest.approx(outside)


def test_far_trials_first_levels_and_the_compared_case_are_named(tmp_path):
    """One trial of 40 is far away, and one or two stopped at the first level."""
    spread = np.geomspace(0.2, 0.3, 40)
    far = np.append(spread[:-1], 90.0)
    cases = {}
    for name, epsilon, first in (("one", spread, 1), ("two", far, 2)):
        arrays = {"epsilon": epsilon, "utility": -epsilon, "privacy_loss": -epsilon}
        ends = {"step": np.arange(40) >= first, "status": np.full(40, Status.STOPPED)}
        arrays |= {key: values.astype("int32") for key, values in ends.items()}
        cases[name] = {"goal": -0.1}, arrays
    results = invented(tmp_path, cases, study="a_b")
    (axes,) = drawn(results, "epsilon_distribution").axes
    assert axes.get_title() == "a_b\n40 trials"
    labels = [label.get_text().split("\n")[-1] for label in axes.get_xticklabels()]
    assert labels == ["all stopped", "first level: 5 %"]
    levels = [line.get_segments() for line in axes.collections if "first" in line.get_label()]
    assert [segments[0][:, 1].tolist() for segments in levels] == [pytest.approx([0.2, 0.2])]
    (axes,) = drawn(results, "utility_at_stop").axes
    assert axes.get_xlabel().split("\n")[1] == "(not shown: up to 2.5 % of a case's trials)"
    assert axes.get_xlim()[0] > -0.5
    (axes,) = drawn(results, "paired_differences").axes
    assert axes.get_xlabel().split("\n")[1:] == ["below 0: less than one paid in the same trial"]


@pytest.mark.parametrize(("stopped", "shown"), [(19, False), (20, True)])
def test_differences_are_drawn_if_most_trials_have_one(tmp_path, stopped, shown):
    cases = {}
    for name in ("one", "two"):
        arrays = {key: np.linspace(0.2, 0.3, 40) for key in ("epsilon", "utility", "privacy_loss")}
        missed = (np.arange(40) >= stopped) & (name == "two")
        arrays["status"] = np.where(missed, Status.EXHAUSTED, Status.STOPPED).astype("int32")
        cases[name] = {}, arrays | {"step": np.ones(40, "int32")}
    (axes,) = drawn(invented(tmp_path, cases, study="a"), "paired_differences").axes
    texts = [text.get_text() for text in axes.texts]
    assert texts == ([] if shown else ["most trials did not stop"])
    assert ("not shown: two (in most trials" in axes.get_xlabel()) != shown


def published(folder, tests, mechanisms):
    """Return results of two tasks and as many tests and mechanisms, with invented numbers."""
    names = ("epsilon", "utility", "privacy_loss", "mechanism_epsilon", "test_epsilon")
    arrays = dict.fromkeys(names, np.geomspace(0.2, 5.0, 40))
    arrays |= {"status": np.full(40, Status.STOPPED, "int32"), "step": np.zeros(40, "int32")}
    cases = {}
    for task, test, mechanism in itertools.product(
        ("logistic", "ridge"),
        ("public", "reduced-above-threshold")[:tests],
        ("brownian", "laplace", "laplace-jumps", "skellam")[:mechanisms],
    ):
        labels = {"task": task, "mechanism": mechanism, "test": test, "data": f"{task}_1-2.csv"}
        cases[f"{task}-{mechanism}-{test}"] = labels, arrays
    return invented(folder, cases)


@pytest.mark.parametrize("tests", [1, pytest.param(2, marks=pytest.mark.long)])
def test_each_task_and_test_has_a_panel_and_no_legend_is_wider(tmp_path, tests):
    few = published(tmp_path, tests, 4)
    for name in ("epsilon_distribution", "epsilon_cdf"):
        figure = drawn(few, name)
        assert [axes.get_title() for axes in figure.axes] == [
            f"{task} on {task}_1-2.csv\ntest: {test}40 trials"
            for task in ("logistic", "ridge")
            for test in ("public, ", "reduced above threshold,\n")[:tests]
        ]
        check_margin(figure)
    check_margin_sees(figure)


def test_long_titles_and_the_legend_fit(tmp_path):
    figure = drawn(published(tmp_path, 2, 1), "epsilon_split")
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes.title.get_window_extent().width < 1.2 * axes.get_window_extent().width
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["test", "releases"]


def test_bars_of_a_row_share_one_scale(tmp_path):
    """A scale of each panel makes an epsilon of 3 as high as one of 30."""
    names = ("epsilon", "utility", "privacy_loss", "mechanism_epsilon", "test_epsilon")
    ends = {"status": np.full(40, Status.STOPPED, "int32"), "step": np.ones(40, "int32")}
    cases = {
        test: ({"test": test}, dict.fromkeys(names, np.full(40, epsilon)) | ends)
        for test, epsilon in (("public", 1.0), ("private", 10.0))
    }
    figure = drawn(invented(tmp_path, cases), "epsilon_split")
    for axes in figure.axes:
        assert axes.get_ylim() == pytest.approx((0, 1.08 * 20))


@pytest.mark.parametrize("count", [20, 60])
def test_the_levels_of_a_grid_make_no_spikes(count):
    limits = (0.1, 50.0)
    levels = np.geomspace(0.16, 20, count)
    values = Sample(np.repeat(levels, 40))

    def unevenness(edges):
        inside = (edges[:-1] > levels[0]) & (edges[1:] < levels[-1])
        density = (values.histogram(edges) / np.diff(np.log(edges)))[inside]
        return density.max() / max(density.min(), 1e-9)

    edges = fitting_edges(values, limits)
    assert unevenness(edges) < 1.01
    # The first level's bin is as wide as the next one's, so nothing is drawn far below it.
    full = edges[:-1][values.histogram(edges) > 0]
    assert full[0] == pytest.approx(levels[0] ** 2 / levels[1])
    assert edges[-2] == levels[-1]
    # Negative control: bins of one width have one level or two, or one or none.
    assert unevenness(np.geomspace(*limits, 61)) > 1.9
    # A continuum has bins of one width, although few of its values lie within the limits.
    rng = np.random.default_rng(0)
    for sample in (rng.uniform(0.2, 10.0, size=20_000), rng.normal(-1, 1, size=20_000)):
        np.testing.assert_allclose(fitting_edges(Sample(sample), limits), np.geomspace(*limits, 61))


def test_a_curve_has_a_band_with_gaps_and_marks_infinite_values():
    axes, style = Figure().subplots(), STYLES[1]
    x = np.geomspace(1.0, 1000.0, 31)
    log_scale(axes, "x", (0.9, 1100.0))
    curve = np.stack([x, x - 0.5, x + 0.5])
    curve[0, 5:9], curve[:, 14], curve[:, 16] = [np.inf, -np.inf, np.inf, np.nan], np.nan, np.nan
    draw_curve(axes, x, curve, style, rank=2, hollow=x > 500)
    line, filled, hollow, above, below = axes.lines
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(line.get_ydata())), [5, 6, 7, 8, 14, 16])
    assert (above.get_xdata().tolist(), above.get_marker()) == ([x[5], x[7]], "^")
    assert (below.get_xdata().tolist(), below.get_marker()) == ([x[6]], "v")
    assert set(above.get_ydata()) == {1 - 0.08}
    assert hollow.get_markerfacecolor() == "white"
    assert min(hollow.get_xdata()) > 500
    assert x[15] in filled.get_xdata()  # without neighbours
    assert 10 <= len(filled.get_xdata()) + len(hollow.get_xdata()) <= 16
    (bar,) = [lines for lines in axes.collections if isinstance(lines, LineCollection)]
    np.testing.assert_allclose(bar.get_segments()[0], [[x[15], x[15] - 0.5], [x[15], x[15] + 0.5]])
    (band,) = bands(axes)
    assert ends_of(band)[x[20]] == (x[20] - 0.5, x[20] + 0.5)
    samples = [Sample(np.arange(100.0)), Sample(np.arange(100.0) + 1)]
    means, quantiles = mean_curve(samples, (0.05, 0.95)), quantile_curve(samples, 0.5)
    np.testing.assert_array_equal(means, [[49.5, 50.5], [4, 5], [94, 95]])
    assert mean_curve(samples)[1:, 0].tolist() == list(samples[0].mean_interval())
    assert quantiles[:, 1].tolist() == [50, *samples[1].quantile_interval(0.5)]


@pytest.mark.long
def test_figures_are_drawn_to_the_same_bytes_in_any_style_of_the_user(tmp_path):
    results, written = published(tmp_path, 1, 2), []
    for style in ({}, {"font.size": 30, "axes.facecolor": "red"}):
        with matplotlib.rc_context(style), results.store.writer() as writer:
            results.write_figures(writer)
        paths = sorted((tmp_path / "figures").glob("*.*g"))
        written.append({path.name: path.read_bytes() for path in paths})
    assert written[0] == written[1]
    names = {f"{name}.{kind}" for name in figures.standard(results) for kind in ("png", "svg")}
    assert set(written[0]) == names
    assert all(data.startswith((b"\x89PNG", b"<?xml")) for data in written[0].values())


def test_mechanisms_differ_in_grey_and_in_shape():
    for field in ("hatch", "marker", "dash"):
        assert len({str(getattr(style, field)) for style in STYLES}) == len(STYLES)
    weights = np.array([0.2126, 0.7152, 0.0722])
    for pair in itertools.pairwise(STYLES):
        lightness = [weights @ matplotlib.colors.to_rgb(style.face) for style in pair]
        assert abs(lightness[0] - lightness[1]) > 0.15
    many = list(mechanism_styles(map(str, range(25))).values())
    assert (tuple(many[:5]), len(set(many))) == (STYLES, 25)
    for field in ("hatch", "marker", "dash"):  # of styles with the same colour
        assert len({(style.face, str(getattr(style, field))) for style in many}) == 25
