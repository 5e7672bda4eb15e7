"""Figures show what the store holds, in full, readable in grey, and the same each time."""

import io
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("xarray")
import matplotlib.colors
import matplotlib.image
from matplotlib.collections import LineCollection, PolyCollection
from scipy import stats

from nrjax import LinearBoundary, plots
from nrjax.plots.common import STYLES
from nrjax.studies.store import Case, Coordinate, Pass, Store, Variable
from nrjax.types import Status

LEVELS = tuple(np.geomspace(0.16, 20, 50).tolist())
TASKS = {"logistic": ("kdd99", 0.3967, 0.41), "ridge": ("twitter", 0.011, 0.025)}


def invented_store(folder, tasks=("logistic",), tests=("public",), more=(), trials=400):
    """Numbers of the published figures' kind: Laplace later, with a tail that does not stop."""
    rng = np.random.default_rng(0)
    names = ("epsilon", "utility", "privacy_loss")
    variables = {name: Variable("float32") for name in names} | {"status": Variable("int32")}
    cases, arrays = [], {}
    for task in tasks:
        data, optimum, target = TASKS[task]
        for test in tests:
            for mechanism in ("brownian", "laplace", *more):
                name = f"{task}-{mechanism}-{test}"
                passes = {"outcome": Pass(trials, trials, variables)}
                late = mechanism != "brownian"
                shift = 0.0 if test == "public" else 0.5
                epsilon = shift + np.exp(rng.normal(-0.6 + late, 0.15 + 0.6 * late, trials))
                status = np.where(epsilon > 6, Status.EXHAUSTED, Status.STOPPED)
                if mechanism == "skellam":
                    epsilon, status = np.full(trials, np.nan), np.full(trials, Status.STOPPED)
                outcome = {name: epsilon for name in names} | {"status": status}
                arrays[name] = {"outcome": outcome}
                if test == "public" and mechanism != "skellam":
                    level = {"epsilon": Coordinate("level", LEVELS)}
                    utility = {"utility": Variable("float32", (("level", 50),))}
                    passes["curve"] = Pass(trials, trials, utility, level)
                    scale = (0.02 if task == "logistic" else 3.0) * (1 + 3 * late)
                    noise = rng.chisquare(3, (trials, 50)) * scale / np.array(LEVELS) ** 1.5
                    arrays[name]["curve"] = {"utility": -(optimum + noise)}
                attributes = {"task": task, "mechanism": mechanism, "test": test, "data": data}
                attributes |= {"optimum": optimum, "target": target}
                cases.append(Case(name, attributes, passes))
    store = Store.create(folder, {}, cases)
    with store.writer() as writer:
        for case in cases:
            for name, layout in case.passes.items():
                chunk = {
                    key: arrays[case.name][name][key].astype(variable.dtype)
                    for key, variable in layout.variables.items()
                }
                writer.write(case.name, name, 0, chunk)
    return store


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return invented_store(
        tmp_path_factory.mktemp("full"),
        tasks=("logistic", "ridge"),
        tests=("public", "reduced"),
        more=("laplace-jumps", "skellam"),
    )


def test_writes_png_and_svg_of_all_figures(full):
    paths = plots.plot_whitehouse(full)
    names = ["epsilon_distribution", "epsilon_cdf", "loss_against_epsilon"]
    assert [path.name for path in paths] == [f"{n}.{s}" for n in names for s in ("png", "svg")]
    assert all(path.parent == full.folder / "figures" for path in paths)
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")


def test_redrawing_gives_the_same_bytes_whatever_the_users_style(tmp_path):
    store = invented_store(tmp_path)
    first = [path.read_bytes() for path in plots.plot_whitehouse(store)]
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        again = [path.read_bytes() for path in plots.plot_whitehouse(Store.open(tmp_path))]
    assert first == again


def test_a_store_without_curves_gets_the_first_figures_only(tmp_path):
    store = invented_store(tmp_path, tests=("reduced",))
    names = [path.name for path in plots.plot_whitehouse(store)]
    figures = ("epsilon_distribution", "epsilon_cdf")
    assert names == [f"{name}.{kind}" for name in figures for kind in ("png", "svg")]


def test_distribution_has_a_panel_for_each_task_and_test(full):
    figure = plots.epsilon_distribution(full)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        f"{task}\ntest: {test}, 400 trials"
        for task in ("logistic on kdd99", "ridge on twitter")
        for test in ("public", "reduced")
    ]
    for axes in figure.axes:
        labels = [label.get_text().split("\n")[0] for label in axes.get_xticklabels()]
        assert labels == ["brownian", "laplace", "laplace jumps", "skellam"]
        assert axes.get_yscale() == "log"
    assert figure.axes[0].get_ylabel() == "ex-post ε (nat)"


def test_distribution_states_medians_and_the_share_that_did_not_stop(full):
    figure = plots.epsilon_distribution(full)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    for mechanism, label in zip(("brownian", "laplace"), labels[:2], strict=True):
        outcome = full.read(f"logistic-{mechanism}-public", "outcome")
        stopped = outcome.status.values == Status.STOPPED
        ordered = np.sort(np.where(stopped, outcome.epsilon, np.inf))
        median = ordered[(ordered.size - 1) // 2]
        share = 100 * (1 - stopped.mean())
        words = f"{share:.3g} % did not stop" if share else "all stopped"
        assert label == f"{mechanism}\nmedian {median:.3g}\n{words}"
    assert labels[0].endswith("all stopped")
    assert labels[1].endswith("did not stop")
    assert labels[3] == "skellam\nno guarantee:\nε not defined"


def test_functions_are_the_shares_of_all_trials_and_bands_hold_them(full):
    """Steps with the band of Dvoretzky, Kiefer and Wolfowitz; what did not stop is never paid."""
    figure = plots.epsilon_cdf(full)
    assert [axes.get_title() for axes in figure.axes] == [
        axes.get_title() for axes in plots.epsilon_distribution(full).axes
    ]
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    bands = [band for band in axes.collections if isinstance(band, PolyCollection)]
    assert list(lines) == ["brownian", "laplace", "laplace jumps"]  # one has no guarantee
    for mechanism, band in zip(("brownian", "laplace"), bands, strict=False):
        outcome = full.read(f"logistic-{mechanism}-public", "outcome")
        stopped = outcome.status.values == Status.STOPPED
        paid = np.where(stopped, outcome.epsilon.values, np.inf)
        x, share = lines[mechanism].get_data()
        assert lines[mechanism].get_drawstyle() == "steps-post"
        np.testing.assert_allclose(share, [100 * np.mean(paid <= one) for one in x], atol=1e-9)
        assert share[0] == 0
        assert share[-1] == pytest.approx(100 * stopped.mean())
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
    assert axes.get_xlabel() == "ex-post ε (nat)"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*lines, "95 % band of all of it (DKW)"]


def test_quartiles_and_medians_have_their_exact_intervals(full):
    axes = plots.epsilon_distribution(full).axes[0]
    epsilon = np.sort(full.read("logistic-brownian-public", "outcome").epsilon.values)
    bars = [line for line in axes.collections if isinstance(line, LineCollection)]
    drawn = [seg[:, 1] for bar in bars for seg in bar.get_segments() if np.ptp(seg[:, 0]) == 0]
    # Ranks from 1, of 400 trials, from SciPy's binomial law.
    for share, found in zip((0.25, 0.5, 0.75), drawn, strict=False):
        law = stats.binom(400, share)
        ranks = int(law.ppf(0.025)), int(law.isf(0.025)) + 1
        np.testing.assert_array_equal(found, [epsilon[rank - 1] for rank in ranks])


def test_nothing_that_is_finite_lies_outside_the_axes(full):
    figure = plots.epsilon_distribution(full)
    low, high = figure.axes[0].get_ylim()
    for mechanism in ("brownian", "laplace", "laplace-jumps"):
        outcome = full.read(f"logistic-{mechanism}-public", "outcome")
        epsilon = outcome.epsilon.values[outcome.status.values == Status.STOPPED]
        assert low < epsilon.min()
        assert epsilon.max() < high


@pytest.mark.parametrize("stopped", [2, 0])
def test_mostly_unstopped_trials_show_as_infinite(tmp_path, stopped):
    """The median of all trials is infinite where most never stopped, whatever the rest cost."""
    store = invented_store(tmp_path, trials=5)
    case = Case(
        "case",
        dict(store.cases["logistic-laplace-public"].attributes),
        {"outcome": Pass(5, 5, {"epsilon": Variable("float32"), "status": Variable("int32")})},
    )
    store = Store.create(tmp_path / "other", {}, [case])
    with store.writer() as writer:
        status = np.where(np.arange(5) < stopped, Status.STOPPED, Status.EXHAUSTED).astype("int32")
        writer.write("case", "outcome", 0, {"epsilon": np.ones(5, "float32"), "status": status})
    figure = plots.epsilon_distribution(store)
    (axes,) = figure.axes
    (label,) = [label.get_text() for label in axes.get_xticklabels()]
    assert label == f"laplace\nmedian ∞\n{100 - 20 * stopped} % did not stop"
    assert "^" in [line.get_marker() for line in axes.lines]
    for panel in (axes, *plots.epsilon_cdf(store).axes):
        texts = [text.get_text() for text in panel.texts]
        assert texts == ([] if stopped else ["no trial stopped"])


@pytest.mark.parametrize("tight_at", [0.005, 0.3, 12.0])
def test_boundaries_are_tight_where_the_runs_is(tmp_path, tight_at):
    case = next(iter(invented_store(tmp_path / "one").cases.values()))
    settings = {"delta": 1e-5, "tight_at": tight_at}
    figure = plots.boundaries(Store.create(tmp_path / "two", {"settings": settings}, [case]))
    left, right = figure.axes
    assert left.get_title() == f"boundaries, tight at ε = {tight_at:g}, δ = 1e-05"
    assert list(left.lines[3].get_ydata()) == list(right.lines[3].get_xdata()) == [tight_at] * 2
    linear = left.lines[0]
    exact = LinearBoundary.tight_at_epsilon(tight_at, 1.0, 1e-5)
    times = linear.get_xdata()
    assert times[0] < float(exact.time(tight_at)) < times[-1]
    np.testing.assert_allclose(linear.get_ydata(), exact.epsilon(times), rtol=1e-5)


def test_loss_lines_are_the_means_and_bands_their_intervals(full):
    figure = plots.loss_against_epsilon(full)
    assert [axes.get_title() for axes in figure.axes] == [
        "logistic on kdd99, 400 trials",
        "ridge on twitter, 400 trials",
    ]
    for axes, task in zip(figure.axes, TASKS, strict=True):
        lines = {line.get_label(): line for line in axes.lines}
        bands = [band for band in axes.collections if isinstance(band, PolyCollection)]
        for mechanism, band in zip(("brownian", "laplace", "laplace-jumps"), bands, strict=True):
            curve = full.read(f"{task}-{mechanism}-public", "curve")
            loss = -curve.utility.values.astype(float)
            line = lines[mechanism.replace("-", " ")]
            np.testing.assert_allclose(line.get_xdata(), LEVELS)
            np.testing.assert_allclose(line.get_ydata(), loss.mean(0), rtol=1e-6)
            # 1.966 is Student's 97.5 % point at 399 degrees of freedom, from a table.
            half = 1.966 * np.sqrt(loss.var(0, ddof=1) / 400)
            points = band.get_paths()[0].vertices
            widths = [np.ptp(points[np.isclose(points[:, 0], level), 1]) for level in LEVELS]
            np.testing.assert_allclose(widths[1:-1], 2 * half[1:-1], rtol=1e-3)
        _, optimum, target = TASKS[task]
        assert lines[f"target: {target:.4g}"].get_ydata()[0] == target
        assert lines[f"optimum without privacy: {optimum:.4g}"].get_ydata()[0] == optimum
        assert axes.get_xlabel() == "ex-post ε (nat)"
        assert axes.get_ylabel() == "mean regularised loss"
        assert axes.get_legend() is not None


def test_mechanisms_differ_in_grey_and_in_shape():
    styles = STYLES
    for field in ("hatch", "marker", "dash"):
        assert len({str(getattr(style, field)) for style in styles}) == len(styles)
    weights = np.array([0.2126, 0.7152, 0.0722])
    for first, second in itertools.pairwise(styles):
        lightness = [weights @ matplotlib.colors.to_rgb(s.face) for s in (first, second)]
        assert abs(lightness[0] - lightness[1]) > 0.15


@pytest.mark.parametrize("which", ["epsilon_distribution", "epsilon_cdf", "loss_against_epsilon"])
def test_nothing_is_cut_off(full, which):
    """A margin of the picture's edge is blank: no text or mark runs into it."""
    check_margin(getattr(plots, which)(full))


@pytest.mark.parametrize("tests", [1, 2, 3])
@pytest.mark.parametrize("more", [(), ("laplace-jumps",)])
def test_no_legend_is_wider_than_its_figure(tmp_path, tests, more):
    names = ("public", "above-threshold", "reduced")[:tests]
    check_margin(plots.epsilon_distribution(invented_store(tmp_path, tests=names, more=more)))


def check_margin(figure):
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=80)
    data.seek(0)
    picture = matplotlib.image.imread(data)[..., :3]
    edges = (picture[:2], picture[-2:], picture[:, :2], picture[:, -2:])
    assert all((edge == 1).all() for edge in edges)
    # Control: a text beyond the edge is seen.
    figure.text(0.99, 0.5, "cut off")
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=80)
    data.seek(0)
    assert not (matplotlib.image.imread(data)[:, -2:, :3] == 1).all()


def test_pyplot_is_not_imported():
    """Its global state and its window system stay out of the program."""
    program = "import sys, nrjax.plots; print('matplotlib.pyplot' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"


def test_a_missing_library_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    source = Path(plots.__file__).read_text()
    with pytest.raises(ModuleNotFoundError, match=r'pip install "nrjax\[studies\]"'):
        exec(compile(source, "plots.py", "exec"), {"__name__": "again"})


if __name__ == "__main__":  # to look at them: python tests/test_plots.py FOLDER
    home = Path(sys.argv[1])
    for name, options in {
        "one": {},
        "two": {"tasks": ("logistic", "ridge")},
        "six": {"tasks": ("logistic", "ridge"), "tests": ("public", "above-threshold", "reduced")},
        "more": {"more": ("laplace-jumps", "skellam")},
    }.items():
        print(*plots.plot_whitehouse(invented_store(home / name, **options)), sep="\n")
