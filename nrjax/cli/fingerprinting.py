"""The command `nrjax fingerprint`: the parts of the fingerprints by which a run is recognised."""

import dataclasses
from pathlib import Path
from typing import Any

import tyro

from nrjax._base.validation import check
from nrjax.cli import loading
from nrjax.study import devices, provenance
from nrjax.study.fingerprint import Fingerprint as Parts
from nrjax.study.store import Store
from nrjax.study.study import Study


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Show the parts of a study's fingerprints, and how they differ from those of a run.

    A run is resumed only if the environment and the fingerprint of each pass are those with which
    it was started. The first half of a fingerprint is a hash of the compiled program of a trial,
    the second half is a hash of the numbers and arrays that the trial uses. Nothing is simulated.
    The exit status is 1 if results of the run would differ.

    To find a difference, write the parts by both versions of the code or the data, and compare:

        nrjax fingerprint runs/mine --out before
        nrjax fingerprint runs/mine --out after
        diff -r before after
    """

    study: tyro.conf.Positional[str]
    """Folder of a run, file of a study, such as my_study.py, or name of a paper's study."""
    against: Path | None = None
    """Folder of the run to compare with, whose settings a file or a paper's study takes. By
    default, the folder of a run is compared with itself."""
    out: Path | None = None
    """Folder for the list of parts, fingerprints.txt, and the text of each program,
    CASE/PASS.mlir."""

    def __call__(self) -> None:
        """Print the parts of all fingerprints, and the differences to the run."""
        devices.configure_jax(devices.cores())
        own = Store.open(self.study) if Path(self.study).is_dir() else None
        run = own if self.against is None else Store.open(self.against)
        source = loading.find(self.study) if own is None else loading.of_store(own)
        study = _study(source, own or run)
        found = study.fingerprints()
        text = _listing(found)
        print(text)
        if self.out is not None:
            _write(self.out, text, found)
        if run is not None:
            _compare(run, found)


def _study(source: loading.Source, store: Store | None) -> Study:
    """Return the study with the settings of a run, or with its default settings."""
    if store is not None:
        return source.stored(store)
    kind: Any = source.settings
    if kind is None:
        return source.study(None)
    nothing = dataclasses.MISSING
    missing = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is nothing and field.default_factory is nothing
    ]
    hint = "Give a run that has the settings, by --against FOLDER."
    check(not missing, f"settings {missing} of {source.name}", None, "given", hint)
    return source.study(kind())


def _listing(found: dict[str, dict[str, Parts]]) -> str:
    """Return the environment, and the parts of each fingerprint."""
    lines = ["environment"]
    lines += [f"    {name}: {fact}" for name, fact in provenance.environment().items()]
    for case, passes in found.items():
        for name, parts in passes.items():
            lines += [f"{case}/{name}", *(f"    {line}" for line in str(parts).splitlines())]
    return "\n".join(lines)


def _compare(run: Store, found: dict[str, dict[str, Parts]]) -> None:
    """Print how fingerprints and environment differ from those of a run, and exit if they do."""
    values = {
        case: {name: parts.value for name, parts in one.items()} for case, one in found.items()
    }
    changes = provenance.environment_changes(run.settings)
    if changes:
        changes.append("fingerprints of code are not comparable between environments")
    changes += provenance.fingerprint_changes(run, values)
    if not changes:
        print(f"The same as those of the run in {run.folder}.")
        return
    print("\n    ".join([f"Changed since the run in {run.folder} was started:", *changes]))
    raise SystemExit(1)


def _write(folder: Path, text: str, found: dict[str, dict[str, Parts]]) -> None:
    """Write the list of parts, and the text of each program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fingerprints.txt").write_text(f"{text}\n")
    for case, passes in found.items():
        (folder / case).mkdir(exist_ok=True)
        for name, parts in passes.items():
            (folder / case / f"{name}.mlir").write_text(parts.text)
