"""Every notebook runs from a clean kernel, without warnings, and is committed without outputs."""

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

from nrjax.types import Status
from tests.invented import invented

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 120
# Run in CI with fewer trials, or up to what compiles for long; whole, as printed, by `-m long`.
QUICK = {
    "brownian_mechanism": {
        "trials = 10_000": "trials = 500",
        "zip(boundaries.items(), kinds, strict=True)": "[(('linear', None), kinds[0])]",
    },
    "my_study": {
        "100_000": "500",
        "Stop(10)": "Stop(2)",
        "in rules.items()": "in list(rules.items())[: 1 + (name == 'linear')]",
    },
    "own_problem": {"nrjax.simulate(": None},
}
RUNS = [
    pytest.param(
        path,
        QUICK.get(path.stem, {}),
        id=path.stem,
        marks=() if path.stem == "brownian_mechanism" else pytest.mark.long,
    )
    for path in NOTEBOOKS
]
RUNS += [
    pytest.param(path, {}, id=f"{path.stem}-whole", marks=pytest.mark.long)
    for path in NOTEBOOKS
    if path.stem in QUICK
]
# In a cell, not by PYTHONWARNINGS: the kernel's start is not what is tested. Nor is its end, where
# ipykernel warns of itself and would no longer shut down.
STRICT = """\
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", module=r"ipykernel\\.")
"""
INLINE = "module://matplotlib_inline.backend_inline"


@pytest.fixture
def kernel_environment(tmp_path, monkeypatch):
    """Kernels read and write their settings under `tmp_path`, and nothing in the user's home."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("MPLBACKEND", INLINE)
    # The checkout that is tested, also where another one is installed.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    cache = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    return tmp_path


def read(path) -> Any:
    """The notebook as it is in the file."""
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def execute(notebook, folder, seconds=CELL_SECONDS):
    """A copy of the notebook, executed in `folder` with warnings as errors."""
    copy: Any = deepcopy(notebook)
    copy.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    client = nbclient.NotebookClient(
        copy,
        timeout=seconds,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    del copy.cells[0]
    return copy


def quicker(notebook, changes):
    """With words replaced, each of which must be there; or ended before the cell with one."""
    copy = deepcopy(notebook)
    for word, other in changes.items():
        places = [number for number, cell in enumerate(copy.cells) if word in cell.source]
        assert places, f"{word!r} is not in the notebook"
        if other is None:
            del copy.cells[places[0] :]
        for number in places if other else ():
            cell = copy.cells[number]
            cell.source = cell.source.replace(word, other)
    return copy


def leftovers(notebook):
    """What a committed notebook must not contain, in words."""
    kinds = (("outputs", "outputs"), ("execution_count", "an execution count"))
    return [
        f"cell {number} has {what}"
        for number, cell in enumerate(notebook.cells)
        for kind, what in (*kinds, ("metadata", "metadata"))
        if cell.get(kind)
    ]


def pictures(cell):
    """How many pictures a cell shows, as outputs of their own or in HTML."""
    shown = [output.get("data", {}) for output in cell.outputs]
    alone = sum("image/png" in data for data in shown)
    return alone + sum(data.get("text/html", "").count("data:image/png") for data in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_clean(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert leftovers(notebook) == []
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize(("path", "changes"), RUNS)
def test_runs(path, changes, kernel_environment):
    done = execute(quicker(read(path), changes), kernel_environment)
    code = [cell for cell in done.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    for cell in code:
        asked = cell.source.count("plt.show()") + cell.source.count("results.plot(")
        assert pictures(cell) == asked, cell.source
    assert not [o.text for o in outputs if o.get("name") == "stderr"]
    said = "".join(output.get("text", "") for output in outputs)
    if path.stem == "brownian_mechanism":  # its one trial shows noise that is taken away
        assert int(said.partition("STOPPED at step ")[2].split()[0]) >= 10
    # The check of committed notebooks sees what a run leaves behind, in every code cell.
    numbers = [n for n, cell in enumerate(done.cells) if cell.cell_type == "code"]
    counts = [f"cell {n} has an execution count" for n in numbers]
    assert set(counts) <= set(leftovers(done))
    assert len(leftovers(done)) > len(counts)


def test_figures_of_results_show_themselves_without_pyplot(tmp_path, kernel_environment):
    """A single figure, and the mapping of all of them."""
    ones = dict.fromkeys(("epsilon", "utility", "privacy_loss"), np.ones(5, "float32"))
    ends = {"status": np.full(5, Status.STOPPED, "int32"), "step": np.arange(5, dtype="int32")}
    results = invented(tmp_path / "run", {"laplace": ({}, ones | ends)})
    sources = [
        f"import sys, nrjax\nresults = nrjax.Results.open({str(results.folder)!r})",
        'results.plot("epsilon_cdf")["epsilon_cdf"]',
        'results.plot("epsilon_cdf", "epsilon_distribution")',
        'assert "matplotlib.pyplot" not in sys.modules',
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    done = execute(nbformat.v4.new_notebook(cells=cells), kernel_environment)
    assert [pictures(cell) for cell in done.cells] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("source", "error", "match"),
    [
        ("import warnings\nwarnings.warn('look ' + 'here')", "CellExecutionError", "look here"),
        ("import time\ntime.sleep(600)", "CellTimeoutError", "timed out"),
    ],
    ids=["warning", "slow"],
)
def test_a_faulty_cell_fails(source, error, match, kernel_environment):
    cells = [nbformat.v4.new_code_cell(one) for one in ("x = 1", source)]
    with pytest.raises(getattr(nbclient.exceptions, error), match=match):
        execute(nbformat.v4.new_notebook(cells=cells), kernel_environment, seconds=3)
