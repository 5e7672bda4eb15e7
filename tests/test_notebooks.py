"""Every notebook runs in a clean kernel without warnings, and has no outputs committed."""

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

from nrjax._base.outcome import Status
from tests.invented import invented

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 120
# Changes for a quick run: fewer trials, or no cells from a long compilation on. `-m long` runs all.
QUICK = {
    "my_study": {
        "trials=2000": "trials=200",
        "20_000": "500",
    },
    "own_problem": {"nrjax.simulate(": None},
}
RUNS = [
    pytest.param(
        path,
        QUICK.get(path.stem, {}),
        id=path.stem,
        marks=() if path.stem == "tiers_of_trust" else pytest.mark.long,
    )
    for path in NOTEBOOKS
]
RUNS += [
    pytest.param(path, {}, id=f"{path.stem}-whole", marks=pytest.mark.long)
    for path in NOTEBOOKS
    if path.stem in QUICK
]
# In a cell, not by PYTHONWARNINGS, so that the start of the kernel may warn. ipykernel may warn at
# its end, where an error would keep it from shutting down.
STRICT = """\
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", module=r"ipykernel\\.")
"""
INLINE = "module://matplotlib_inline.backend_inline"


@pytest.fixture
def kernel_environment(tmp_path, monkeypatch):
    """Keep the settings of kernels under `tmp_path`, and out of the user's home."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("MPLBACKEND", INLINE)
    # The tested checkout, even if another one is installed.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    cache = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    return tmp_path


def read(path) -> Any:
    """Return the notebook as it is in the file."""
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def execute(notebook, folder):
    """Return a copy of the notebook, executed in `folder` with warnings as errors."""
    copy: Any = deepcopy(notebook)
    copy.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    client = nbclient.NotebookClient(
        copy,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    del copy.cells[0]
    return copy


def quicker(notebook, changes):
    """Return a copy with words replaced, or without the cells from a word on."""
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


def pictures(cell):
    """Return the number of pictures of a cell, as outputs or in HTML."""
    outputs = [output.get("data", {}) for output in cell.outputs]
    images = sum("image/png" in data for data in outputs)
    return images + sum(data.get("text/html", "").count("data:image/png") for data in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_clean(path):
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not any(map(cell.get, ("outputs", "execution_count", "metadata")))
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize(("path", "changes"), RUNS)
def test_runs(path, changes, kernel_environment):
    done = execute(quicker(read(path), changes), kernel_environment)
    code = [cell for cell in done.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    for cell in code:
        expected = cell.source.count("plt.show()") + cell.source.count("results.plot(")
        assert pictures(cell) == expected, cell.source
    assert not [o.text for o in outputs if o.get("name") == "stderr"]
    text = "".join(output.get("text", "") for output in outputs)
    if path.stem == "brownian_mechanism":  # its plotted trial has enough steps to see
        assert int(text.partition("STOPPED at step ")[2].split()[0]) >= 10


def test_figures_of_results_are_shown_without_pyplot(tmp_path, kernel_environment):
    """A single figure is shown, and so is the mapping of several."""
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


def test_a_cell_that_warns_fails(kernel_environment):
    sources = "x = 1", "import warnings\nwarnings.warn('look ' + 'here')"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="look here"):
        execute(nbformat.v4.new_notebook(cells=cells), kernel_environment)
