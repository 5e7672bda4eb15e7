"""The standard figures show all that the results hold, readable in grey, the same each time."""

import itertools
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.colors
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy import stats

import nrjax
from nrjax.pytrees import Pytree
from nrjax.study import figures
from nrjax.study.distribution import Sample
from nrjax.study.drawing import STYLES, fitting_edges, mean_with_ends
from nrjax.types import Status
from tests.invented import bands, check_margin, check_margin_sees, invented, legend_of
from tests.problems import scalar

EPSILON = "ex-post ε (nat)"
AXES = {
    "epsilon_distribution": ("", EPSILON),
    "epsilon_cdf": (EPSILON, "trials that paid at most ε (%)"),
    "epsilon_split": ("", "mean ε of the trials that stopped (nat)"),
    "utility_at_stop": ("utility at the stop", "stopped trials at or below (%)"),
    "releases": ("number of the last step, from 0", "trials that ended by then (%)"),
    "paired_differences": ("difference of ε, by trial (nat)", "trials at or below (%)"),
    "loss_against_epsilon_stated": ("stated ε of the releases (nat)", "realised loss (nat)"),
}
"""Labels of the axes, by figure."""

OF_TRIALS = ("paired_differences", "loss_against_epsilon_stated")
"""Figures that need the trials themselves."""


class Walked(NamedTuple):
    last: Any
    steps: Any


class Walk(Pytree):
    """A session."""

    scale: Any

    def run(self, key):
        moves = self.scale * jax.random.normal(key, (5,))
        return Walked(jnp.sum(moves), jnp.sum(moves > 0, dtype=jnp.int32))


@pytest.fixture(scope="module", params=["trials", "summary"])
def results(request, tmp_path_factory):
    """One that stops, one that is dearer, one where nobody stops, one without a guarantee."""
    parts = scalar(np.geomspace(100.0, 0.01, 20)) | {"shift": 1.0}
    never = parts | {"rule": nrjax.PublicThreshold(1.0)}
    cases = {
        "cheap": parts,
        "dear": parts | {"rule": nrjax.PublicThreshold(-0.05)},
        "never": never,
        "bare": parts | {"guarantee": None},
    }
    study = nrjax.Study("s", {name: nrjax.Interaction(**one) for name, one in cases.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nrjax.Results, "draw", lambda self: None)
        folder = tmp_path_factory.mktemp("run")
        return study.run(folder, trials=300, keep=request.param, progress=False)


def drawn(results, name):
    return results.plot(name)[name]


def test_each_is_drawn_from_trials_or_summaries_and_labelled(results):
    names = {name for name in AXES if results.keeps_trials("cheap") or name not in OF_TRIALS}
    assert set(figures.standard(results)) == names
    for name in names:
        figure = drawn(results, name)
        (axes,) = figure.axes
        assert (axes.get_xlabel(), axes.get_ylabel()) == AXES[name]
        assert axes.get_title() == "300 trials"
        assert legend_of(figure)
        check_margin(figure)


def test_each_is_drawn_on_given_axes(results):
    for name, draw in figures.standard(results).items():
        figure = Figure()
        axes = figure.subplots()
        assert draw(results, axes=axes, cases=["dear", "cheap"]) is figure
        assert (axes.get_xlabel(), axes.get_ylabel()) == AXES[name]
        labels = " ".join(axes.get_legend_handles_labels()[1])
        ticks = " ".join(tick.get_text() for tick in axes.get_xticklabels())
        for case in ("cheap", "dear"):
            assert case in labels + ticks
        assert "never" not in labels + ticks


def test_cases_without_a_guarantee_or_a_stop_are_said(results):
    (axes,) = drawn(results, "epsilon_distribution").axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels[2:] == [
        "never\nmedian ∞\n100 % did not stop",
        "bare\nno guarantee:\nε not defined",
    ]
    for name, texts in (("epsilon_distribution", 1), ("epsilon_cdf", 1), ("utility_at_stop", 1)):
        axes = Figure().subplots()
        figures.standard(results)[name](results, axes=axes, cases=["never"])
        assert len(axes.texts) == texts
    axes = Figure().subplots()
    figures.epsilon_cdf(results, axes=axes, cases=["bare"])
    assert axes.lines[:] == []


def test_means_and_shares_are_those_of_the_results(results):
    """Bars are means of the two parts of epsilon; the text says who met the goal."""
    (axes,) = drawn(results, "epsilon_split").axes
    heights = [bar.get_height() for bar in axes.patches]
    means = [
        results.distribution(case, f"stopped_{part}_epsilon").mean
        for case in ("cheap", "dear")
        for part in ("mechanism", "test")
    ]
    np.testing.assert_allclose(heights, means)
    (axes,) = drawn(results, "utility_at_stop").axes
    assert axes.texts[0].get_text().split("\n")[0] == "cheap: 100 % of the stopped met it"
    goals = [line.get_xdata()[0] for line in axes.lines if line.get_label() == "goal"]
    np.testing.assert_allclose(goals[:2], [-0.5, -0.05])


def test_of_sessions_each_number_has_a_panel(tmp_path):
    study = nrjax.Study("s", {"narrow": Walk(1.0), "wide": Walk(3.0)})
    figure = drawn(study.run(tmp_path, trials=50, progress=False), "quantities")
    assert [axes.get_xlabel() for axes in figure.axes] == ["last", "steps"]
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]
    assert legend_of(figure)[:2] == ["narrow", "wide"]
    assert {path.name for path in (tmp_path / "figures").iterdir() if path.suffix == ".png"} == {
        "quantities.png"
    }
    check_margin(figure)


MECHANISMS = ("brownian", "laplace", "laplace-jumps", "skellam")


def published(folder, tasks=("logistic",), tests=("public",), mechanisms=MECHANISMS[:2]):
    """Numbers of the published figures' kind: Laplace later, with a tail that does not stop."""
    rng, cases = np.random.default_rng(0), {}
    for task, test, mechanism in itertools.product(tasks, tests, mechanisms):
        late = mechanism != "brownian"
        epsilon = (test != "public") + np.exp(rng.normal(-0.6 + late, 0.15 + 0.6 * late, 400))
        status = np.where(epsilon > 6, Status.EXHAUSTED, Status.STOPPED).astype("int32")
        if mechanism == "skellam":
            epsilon, status = np.full(400, np.nan), np.full(400, Status.STOPPED, "int32")
        labels = {"task": task, "mechanism": mechanism, "test": test, "data": f"{task} data"}
        names = ("epsilon", "utility", "privacy_loss", "mechanism_epsilon", "test_epsilon")
        arrays = dict.fromkeys(names, epsilon.astype("float32"))
        arrays |= {"status": status, "step": np.zeros(400, "int32")}
        cases[f"{task}-{mechanism}-{test}"] = labels, arrays
    return invented(folder, cases)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    return published(folder, ("logistic", "ridge"), ("public", "reduced"), MECHANISMS)


def paid(results, mechanism):
    return results[f"logistic-{mechanism}-public"]["stopping_epsilon"].values


def test_a_panel_for_each_task_and_test(full):
    for name in ("epsilon_distribution", "epsilon_cdf"):
        assert [axes.get_title() for axes in drawn(full, name).axes] == [
            f"{task} on {task} data\ntest: {test}, 400 trials"
            for task in ("logistic", "ridge")
            for test in ("public", "reduced")
        ]


def test_distribution_states_medians_and_the_share_that_did_not_stop(full):
    axes = drawn(full, "epsilon_distribution").axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    for mechanism, label in zip(MECHANISMS[:2], labels, strict=False):
        ordered = np.sort(paid(full, mechanism))
        share = 100 * np.mean(np.isinf(ordered))
        words = f"{share:.3g} % did not stop" if share else "all stopped"
        assert label == f"{mechanism}\nmedian {ordered[199]:.3g}\n{words}"
        low, high = axes.get_ylim()  # nothing that is finite lies outside
        assert low < ordered[0]
        assert ordered[np.isfinite(ordered)][-1] < high
    assert labels[0].endswith("all stopped")
    assert labels[1].endswith("did not stop")
    assert labels[2].startswith("laplace jumps\n")


def test_functions_are_the_shares_of_all_trials_and_bands_hold_them(full):
    """Steps with the band of Dvoretzky, Kiefer and Wolfowitz; what did not stop is never paid."""
    figure = drawn(full, "epsilon_cdf")
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == ["brownian", "laplace", "laplace jumps"]  # one has no guarantee
    for mechanism, band in zip(MECHANISMS[:2], bands(axes), strict=False):
        epsilon = paid(full, mechanism)
        x, share = lines[mechanism].get_data()
        assert lines[mechanism].get_drawstyle() == "steps-post"
        np.testing.assert_allclose(share, [100 * np.mean(epsilon <= one) for one in x], atol=1e-9)
        assert share[0] == 0
        assert share[-1] == pytest.approx(100 * np.mean(np.isfinite(epsilon)))
        # Halfway up nothing is cut off: sqrt(log(40) / 800) on either side.
        middle = np.argmin(np.abs(share - 50))
        at = (x[middle] + x[middle + 1]) / 2
        points = band.get_paths()[0].vertices
        left, right = points[:, 0] <= at, points[:, 0] > at
        crossing = {y for y in points[left, 1]} & {y for y in points[right, 1]}
        half = 100 * np.sqrt(np.log(40) / 800)
        for edge in (share[middle] - half, share[middle] + half):
            assert min(abs(edge - y) for y in crossing) < 1e-6
    assert axes.get_ylim() == (0, 100)
    assert legend_of(figure) == [*lines, "95 % band of all of it (DKW)"]


def test_quartiles_and_medians_have_their_exact_intervals(full):
    axes = drawn(full, "epsilon_distribution").axes[0]
    epsilon = np.sort(paid(full, "brownian"))
    bars = [line for line in axes.collections if isinstance(line, LineCollection)]
    drawn_bars = [seg[:, 1] for bar in bars for seg in bar.get_segments() if np.ptp(seg[:, 0]) == 0]
    # Ranks from 1, of 400 trials, from SciPy's binomial law.
    for share, found in zip((0.25, 0.5, 0.75), drawn_bars, strict=False):
        law = stats.binom(400, share)
        ranks = int(law.ppf(0.025)), int(law.isf(0.025)) + 1
        np.testing.assert_array_equal(found, [epsilon[rank - 1] for rank in ranks])


@pytest.mark.parametrize("stopped", [2, 0])
def test_mostly_unstopped_trials_show_as_infinite(tmp_path, stopped):
    """The median of all trials is infinite where most never stopped, whatever the rest cost."""
    status = np.where(np.arange(5) < stopped, Status.STOPPED, Status.EXHAUSTED).astype("int32")
    ones = dict.fromkeys(("epsilon", "utility", "privacy_loss"), np.ones(5, "float32"))
    few = invented(tmp_path, {"laplace": ({}, ones | {"status": status})})
    (axes,) = drawn(few, "epsilon_distribution").axes
    (label,) = [label.get_text() for label in axes.get_xticklabels()]
    assert label == f"laplace\nmedian ∞\n{100 - 20 * stopped} % did not stop"
    assert "^" in [line.get_marker() for line in axes.lines]
    for panel in (axes, *drawn(few, "epsilon_cdf").axes):
        texts = [text.get_text() for text in panel.texts]
        assert texts == ([] if stopped else ["no trial stopped"])


@pytest.mark.parametrize("tests", [1, 2, 3])
@pytest.mark.parametrize("mechanisms", [2, 3])
def test_no_legend_is_wider_than_its_figure(tmp_path, tests, mechanisms):
    names = ("public", "above-threshold", "reduced")[:tests]
    few = published(tmp_path, tests=names, mechanisms=MECHANISMS[:mechanisms])
    for name in ("epsilon_distribution", "epsilon_cdf"):
        figure = drawn(few, name)
        check_margin(figure)
        check_margin_sees(figure)


@pytest.mark.parametrize("count", [20, 60])
def test_no_spikes_are_drawn_where_values_are_the_levels_of_a_grid(count):
    limits = (0.1, 50.0)
    levels = np.geomspace(0.16, 20, count)
    law = Sample(np.repeat(levels, 40))

    def unevenness(edges):
        inside = (edges[:-1] > levels[0]) & (edges[1:] < levels[-1])
        density = (law.histogram(edges) / np.diff(np.log(edges)))[inside]
        return density.max() / max(density.min(), 1e-9)

    assert unevenness(fitting_edges(law, limits)) < 1.01
    # Control: bins that take no notice of the levels hold one of them, or two; or one, or none.
    assert unevenness(np.geomspace(*limits, 61)) > 1.9
    # A continuum has bins of one width.
    many = Sample(np.random.default_rng(0).uniform(0.2, 10.0, size=20_000))
    np.testing.assert_allclose(fitting_edges(many, limits), np.geomspace(*limits, 61))


def test_redrawing_gives_the_same_bytes_whatever_the_users_style(tmp_path):
    results, written = published(tmp_path), []
    for style in ({}, {"font.size": 30, "axes.facecolor": "red"}):
        with matplotlib.rc_context(style), results.store.writer():
            results.draw()
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


def test_pyplot_is_not_imported():
    """Its global state and its window system stay out of the program."""
    program = "import sys, nrjax.study.figures; print('matplotlib.pyplot' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"


def test_the_mean_with_ends_covers_what_is_undefined():
    # 12.706 is Student's 97.5 % point at 1 degree of freedom.
    mean, low, high = mean_with_ends(Sample(np.array([1.0, 3.0], "float32")))
    np.testing.assert_allclose([mean, low, high], [2, 2 - 12.706, 2 + 12.706], rtol=1e-4)
    for values, expected in (([5.0], 5.0), ([1.0, np.inf], np.inf), ([], np.nan)):
        mean, low, high = mean_with_ends(Sample(np.array(values)))
        np.testing.assert_array_equal([mean, low, high], [expected, np.nan, np.nan])
