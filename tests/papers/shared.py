"""What tests of the papers share: where the papers' data are, and running a study."""

import importlib
import json
import os
from pathlib import Path

import pytest

from nrjax.study.results import Results

PAPERS_DATA = Path(os.environ.get("NRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))

on_papers_data = pytest.mark.skipif(
    not PAPERS_DATA.is_dir(), reason=f"no folder {PAPERS_DATA} with the papers' data"
)


def run(settings, folder, **options):
    """Results of a study of a paper, without figures: tests of these draw those they look at."""
    paper = importlib.import_module(type(settings).__module__.rpartition(".")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Results, "draw", lambda self: None)
        return paper.study(settings).run(folder, progress=False, **options)


def summary_of(results):
    """What `summary.json` says."""
    return json.loads((results.folder / "summary.json").read_text())
