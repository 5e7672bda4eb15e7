"""Every example, command, number and link of the README holds."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import jax
import pytest

import nrjax
from benchmarks import summary

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def execute(example, names, **changes):
    for text, other in changes.items():
        assert text in example
        example = example.replace(text, other)
    exec(compile(example, "README.md", "exec"), names)
    return names


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(NUMBER, text)]


def figure():
    """Return the module that draws the README's figure."""
    spec = importlib.util.spec_from_file_location("figure", ROOT / "docs/figures/readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_short_and_warns_in_the_first_screen():
    lines = README.splitlines()
    assert len(lines) <= 130
    assert "not for releasing real data" in "\n".join(lines[:10])


def test_the_first_two_commands_are_one_line_each():
    for command in blocks("bash")[:2]:
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv")


def test_the_first_examples_print_what_they_state(capsys):
    """So do the epsilons that are fixed in advance and have closed forms."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    names = {}
    for example in blocks("python")[:2]:
        (stated,) = re.findall(r"# \[(.*)\]", example)
        execute(example, names, **{"10_000": "200"})
        found = numbers(capsys.readouterr().out)
        assert found == pytest.approx(numbers(stated), rel=0.3)
    module, problem, prose = figure(), names["problem"], README.replace("\n", " ")
    assert f"2017 calls for {module.theorem_epsilon(problem):.1f}." in prose
    curvature = module.curvature_epsilon(problem, problem.brownian(delta=1e-6))
    assert f"it calls for {curvature:.3f}." in prose


def test_the_example_of_a_table_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f"{20 + n},{900 * n},{'AB'[n % 2]},{('no', 'yes')[n % 3 > 0]}\n" for n in range(60)
    )
    Path("churn.csv").write_text(f"age,income,city,churned\n{rows}")
    execute(blocks("python")[2], {"nrjax": nrjax})
    assert (
        "Taken from the data, which no epsilon covers: that the target has"
        in capsys.readouterr().out
    )


def test_the_commands_are_understood(tmp_path, monkeypatch):
    """Each command is parsed, and the one of a table has the bounds of the Python example."""
    commands = pytest.importorskip("nrjax.cli.commands")
    monkeypatch.chdir(tmp_path)
    called = []
    monkeypatch.setattr("nrjax.cli.commands._run", lambda *parts: called.append(parts[1]))
    for name in ("nrjax.cli.folders.Resume", "nrjax.cli.choosing.Choose"):
        monkeypatch.setattr(f"{name}.__call__", lambda own: called.append(own))
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    written = [line[line.index("nrjax ") :] for line in lines if "nrjax " in line]
    written += re.findall(r"`(nrjax (?:choose|resume) [^`]*)`", README)
    assert len(written) == 4
    for command in written:
        assert commands.main(shlex.split(command)[1:]) == 0, command
    assert len(called) == len(written)
    (own,) = [settings for settings in called if getattr(settings, "bounds", ())]
    names = execute(blocks("python")[2].partition("data =")[0], {})
    assert [bound.partition("=")[0] for bound in own.bounds] == list(names["bounds"])


def test_names_links_and_studies_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"`nrjax\.([\w.]+)`", README):
        assert hasattr(nrjax, name), name
    (table,) = re.findall(r"^## What is in it\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    assert table.count("\n| ") == 2 + 8
    mechanisms = ("brownian", "laplace", "discrete_laplace", "Releases", "FixedRelease")
    for name in mechanisms:
        assert f"`{name}`" in table
        assert hasattr(nrjax, name)
    (studies,) = re.findall(r"^\| studies \|(.*)\|$", table, re.MULTILINE)
    named = set(re.findall(r"`(?:nrjax run )?(\w+)`", studies))
    assert named == {*nrjax.papers.STUDIES} - {nrjax.papers.OWN_TABLE}


def test_speeds_are_those_of_the_benchmarks():
    (stated,) = re.findall(r"## Speed\n(.*?)\(\[", README, re.DOTALL)
    stored = json.loads(summary.STORED.read_text())
    numba, numpy = (summary.ratios(line, stored) for line in summary.LINES[:2])
    assert len(numba) == len(numpy) == 6
    ends = [round(numba[0], 2), numba[-1], int(numpy[0]), numpy[-1]]
    assert numbers(stated) == [round(summary.mean(numba), 2), *ends]


@pytest.mark.long
def test_the_figure_and_the_study_have_the_stated_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module, prose = figure(), README.replace("\n", " ")
    outcome, lines = module.numbers()[2:]
    assert f"median epsilon of {outcome.quantile(0.5):.3f}" in prose
    assert f"in 95 % of runs costs {lines['oracle']:.3f}" in prose
    problem = module.learning()[0]
    private = problem.brownian(delta=1e-6).until(
        at_least=-1.03 * problem.optimum_loss, private=True
    )
    tested = nrjax.simulate(jax.random.key(0), private, trials=10_000)
    assert f"{tested.quantile(0.5):.2f} if the decision to stop must" in prose
    first, _, _, study = blocks("python")
    names = execute(study, execute(first, {}))
    medians = [
        names["results"].distribution(case, "stopping_epsilon").quantile(0.5)
        for case in names["cases"]
    ]
    assert [f"{median:.4f}" for median in medians] == re.findall(r"median (0\.\d{4})", study)
    assert "smaller in 97" in capsys.readouterr().out
