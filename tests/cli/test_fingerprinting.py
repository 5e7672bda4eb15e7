"""The command `nrjax fingerprint` lists the parts and names what has changed since a run."""

from pathlib import Path

import pytest

pytest.importorskip("tyro")
from nrjax.cli import main
from nrjax.study.store import Store

FILE = """
import dataclasses
import numpy as np
import nrjax
from tests.study import cheap

@dataclasses.dataclass(frozen=True)
class Settings:
    start: float
    bias: float = 0.5

class Walk(cheap.Walk):
    def run(self, key):
        walked = super().run(key)
        return walked._replace(end=walked.end + STEP)

reporting = cheap.Quiet()

def study(settings: Settings):
    cases = {"one": Walk(np.float32(settings.start)), "two": cheap.Walk(np.float32(0))}
    return nrjax.Study("walks", cases, reporting=reporting)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("walks.py").write_text(FILE.replace("STEP", "1.0"))
    assert main(["run", "walks.py", "--start", "2", "--trials", "20", "--out", "run"]) == 0


def test_parts_and_changes(folder, capsys):
    prints = Store.open("run").settings["fingerprints"]
    capsys.readouterr()
    assert main(["fingerprint", "run", "--out", "before"]) == 0
    printed = capsys.readouterr().out
    assert "The same as those of the run in run." in printed
    for case in ("one", "two"):
        value = prints[case]["outcome"]
        assert f"{case}/outcome\n    program {value[:16]}  tile 256" in printed
        assert f"    data    {value[16:]}\n        " in printed
        assert Path(f"before/{case}/outcome.mlir").read_text().startswith("module @")
    assert printed.startswith(Path("before/fingerprints.txt").read_text())
    # After an edit of the code and of a number:
    Path("walks.py").write_text(FILE.replace("STEP", "2.0").replace("float32(0)", "float32(1)"))
    with pytest.raises(SystemExit, match="1"):
        main(["fingerprint", "walks.py", "--against", "run", "--out", "after"])
    printed = capsys.readouterr().out
    last = "(use the same files, numbers and cores; see nrjax fingerprint run)"
    assert printed.endswith(f"the data of two/outcome differ {last}\n")
    assert "the code of one/outcome differs (use the Python files and batching" in printed
    same, other = (Path(f"{name}/one/outcome.mlir").read_text() for name in ("before", "after"))
    pairs = zip(same.splitlines(), other.splitlines(), strict=True)
    assert sum(one != two for one, two in pairs) == 1
    assert main(["resume", "run", "--trials", "30"]) == 2
    refused = capsys.readouterr().err
    assert "the code of one/outcome differs" in refused
    assert "the data of two/outcome differ" in refused


def test_another_environment_and_missing_settings_are_named(folder, capsys, monkeypatch):
    assert main(["fingerprint", "walks.py"]) == 2
    error = capsys.readouterr().err
    assert "walks.py must be given (got None). Give a run that has the settings" in error
    stored = Store.open("run").settings["xla_flags"]
    monkeypatch.setenv("XLA_FLAGS", f"{stored} --xla_a")
    with pytest.raises(SystemExit, match="1"):
        main(["fingerprint", "run"])
    printed = capsys.readouterr().out
    assert f"here and was '{stored}' (set XLA_FLAGS='{stored}')" in printed
    assert "fingerprints of code are not comparable between environments" in printed
