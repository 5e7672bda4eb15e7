"""A merge of the parts of one run into a folder, in which each trial is counted once."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._base.validation import check
from nrjax.simulation.counting import merge as merged_counts
from nrjax.study import files
from nrjax.study.checks import check_path
from nrjax.study.chunks import disjoint, encode_chunk, file_of
from nrjax.study.files import UnfinishedError
from nrjax.study.locks import lock, parts_of, parts_with
from nrjax.study.store import Store

_FREE = ("platform", "source")
"""Recorded facts that may differ between the parts: a kernel's version, the path of a file."""

_SHOWN = 10
"""The largest number of parts, or of ranges of trials, that a message lists."""

Spans = dict[range, Store]
"""The files of a pass by their trials, each with the store that holds it."""


def merge(folders: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Store:
    """Merge the parts of one run, as `Results.merge` describes, and return the store."""
    check_path(out)
    listed = isinstance(folders, Iterable) and not isinstance(folders, (str, bytes))
    names = [*folders] if listed else []
    check(len(names) > 0, "folders", folders, "a list of folders of runs")
    files.check_packages("filelock", "matplotlib", "scipy", "xarray")
    into = Path(out)
    if files.read_manifest(into / files.RESULTS):
        names = [into, *names]  # a merge that was stopped, or one of the folders
    stores = {Path(name).resolve(): Store.open(name) for name in names}
    first, *others = stores.values()
    for other in others:
        _check_same(first, other)
    found = {(case, name): _found(case, name, stores.values()) for case, name, _ in first.passes()}
    _check_complete(first, found, stores.values())
    target = stores.get(into.resolve())
    if target is None:
        target = Store.create(into, first.settings, list(first.cases.values()))
    with lock(target.folder), files.explaining(f"cannot merge into {target.folder}"):
        target.check_current()
        files.remove_temporary(target.folder)
        for (case, name), spans in found.items():
            _bring(target, case, name, spans)
    return Store.open(target.folder)


def _check_same(first: Store, other: Store) -> None:
    """Raise ValueError with the differences if two folders hold different runs."""
    one, two = (
        store.settings | {f"the option {key}": v for key, v in store.settings["settings"].items()}
        for store in (first, other)
    )
    names = [name for name in sorted({*one, *two}) if name not in (*_FREE, "settings")]
    differ = [name for name in names if one.get(name) != two.get(name)]
    if not differ and first.cases != other.cases:
        differ = ["the cases"]
    shown = [
        f"{name} is {two.get(name)!r} there and {one.get(name)!r} in {first.folder}"
        if isinstance(two.get(name), str | int | float | None)
        else f"{name} differ"
        for name in differ
    ]
    if shown:
        raise ValueError(
            f"folders must be of parts of one run (got: {other.folder}: {'; '.join(shown)}). Run "
            "all parts with the same study, options and versions, on processors of one kind"
        )


def _found(case: str, name: str, stores: Iterable[Store]) -> Spans:
    """Return files of a pass that have no trials in common and hold the most trials."""
    found: Spans = {}
    for store in stores:
        for span in store.done(case, name):
            found.setdefault(span, store)
    return {span: found[span] for span in disjoint(found)}


def _check_complete(
    first: Store, found: Mapping[tuple[str, str], Spans], stores: Iterable[Store]
) -> None:
    """Raise UnfinishedError, with how to go on, if trials are missing in all folders."""
    missing = []
    for (case, name), spans in found.items():
        trials, at = first.pass_of(case, name).trials, 0
        for span in (*spans, range(trials, trials)):
            missing += [(case, name, range(at, span.start))] if at < span.start else []
            at = span.stop
    if not missing:
        return
    totals = {part.total for store in stores for part in parts_of(store.folder)}
    hint = f"{first.resume_command} runs them"
    what = f"trials {_listed([f'{s.start} to {s.stop - 1} of {c}/{n}' for c, n, s in missing])}"
    if len(totals) == 1:
        (total,) = totals
        lacking = sorted(
            {
                number
                for case, name, span in missing
                for number in parts_with(span, first.pass_of(case, name).trials, total)
            }
        )
        what = f"trials of {_listed([f'part {number}/{total}' for number in lacking])}"
        hint = "run these parts again, or give the folders that hold them"
        if first.is_from_shell:
            again = f"`nrjax resume {first.folder} --part {lacking[0]}/{total}`"
            hint = f"{again} runs the first of them, or give the folders that hold them"
    raise UnfinishedError(f"the parts do not make a whole run: {what} are missing; {hint}")


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def _bring(target: Store, case: str, name: str, spans: Spans) -> None:
    """Bring the files of a pass into a store. The caller holds its lock."""
    pass_, folder = target.pass_of(case, name), target.path_of(case, name)
    folder.mkdir(parents=True, exist_ok=True)
    if pass_.axis == "chunk" and pass_.chunk is None and len(spans) > 1:
        whole = range(pass_.trials)
        arrays = merged_counts(_read(case, name, spans))
        content = encode_chunk(arrays, target.tag_of(case, name, file_of(whole)))
        files.atomic_write(folder / file_of(whole), content)
        kept = {whole}
    else:
        for span, store in spans.items():
            if store is not target:
                _copy(store.path_of(case, name) / file_of(span), folder / file_of(span))
        kept = {*spans}
    for span in target.written(case, name):
        if span not in kept:  # the pieces of the whole, or files that overlap others
            (folder / file_of(span)).unlink()


def _read(case: str, name: str, spans: Spans) -> Iterable[dict[str, Any]]:
    """Yield the arrays of the files of a pass, and the seconds that they took."""
    for span, store in spans.items():
        arrays = store.read(case, name, span)
        yield arrays | {"seconds": np.asarray(arrays["seconds"])}


def _copy(source: Path, place: Path) -> None:
    """Link a file to a new place, or copy it where that is impossible. A kill leaves no half."""
    with contextlib.suppress(OSError):
        place.unlink(missing_ok=True)
        os.link(source, place)
        return
    temporary = files.temporary_of(place)
    try:
        shutil.copyfile(source, temporary)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
