"""What a run's bits depend on, and how another machine or version differs from it."""

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax._machine import processor
from nrjax.program import Program
from nrjax.studies.layout import Case, from_json, to_json
from nrjax.studies.settings import to_plain

_REMEDIES = {
    "nrjax": 'pip install "nrjax=={}"',
    "jax": 'pip install "jax=={}"',
    "jaxlib": 'pip install "jaxlib=={}"',
    "device": "set JAX_PLATFORMS={}",
    "device_kind": "a device of that kind",
    "cpu": "a processor of that kind",
    "cpu_features": "a processor with these",
    "threefry_partitionable": "set JAX_THREEFRY_PARTITIONABLE={}",
}
"""What a run's bits depend on, and what is right where it differs."""


def facts(study: str, settings: Any) -> dict[str, Any]:
    """What a store says of a run as a whole; `settings` is a dataclass."""
    return {
        "study": study,
        "nrjax": nrjax.__version__,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "platform": platform.platform(),
        "device": jax.local_devices()[0].platform,
        "device_kind": jax.local_devices()[0].device_kind,
        **processor(),
        "precision": str(jnp.result_type(float)),
        "threefry_partitionable": bool(jax.config.jax_threefry_partitionable),  # pyright: ignore[reportAttributeAccessIssue]
        "seed": settings.seed,
        "settings": to_plain(settings),
    }


def fingerprints(programs: Mapping[str, Mapping[str, Program]]) -> dict[str, dict[str, str]]:
    """Of the numbers that each program works on (value, data, times, thresholds), by case, pass."""
    known: dict[
        int, tuple[Any, bytes]
    ] = {}  # with the array, so that its number is given to no other

    def digest(leaf: Any) -> bytes:
        if id(leaf) not in known:
            array = np.ascontiguousarray(leaf)
            whole = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
            whole.update(array.tobytes())
            known[id(leaf)] = leaf, whole.digest()
        return known[id(leaf)][1]

    def fingerprint(program: Program) -> str:
        leaves = jax.tree.leaves(program.trial)
        return hashlib.sha256(b"".join(map(digest, leaves))).hexdigest()[:32]

    return {
        case: {name: fingerprint(program) for name, program in passes.items()}
        for case, passes in programs.items()
    }


def differences_of_facts(stored: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Where this process would give other bits than the one that wrote a store."""
    found = []
    for name, remedy in _REMEDIES.items():
        ours, theirs = here[name], stored.get(name)
        if name.startswith("cpu") and here["device"] != "cpu":
            continue
        if ours != theirs:
            found.append(f"{name} is {ours!r} here and was {theirs!r} ({remedy.format(theirs)})")
    if here["seed"] != stored.get("seed"):
        found.append(f"seed is {here['seed']!r} here and was {stored.get('seed')!r}")
    if here["precision"] != stored.get("precision"):
        wide = stored.get("precision") == "float64"
        right = "set JAX_ENABLE_X64=1" if wide else "unset JAX_ENABLE_X64"
        found.append(
            f"precision is {here['precision']!r} here and was {stored.get('precision')!r} ({right})"
        )
    return found


def differences_of_run(stored: Mapping[str, Any], study: Any, settings: Any) -> list[str]:
    """Where a process was not started as the one that laid out a store."""
    here = facts(study.NAME, settings)
    if here["study"] != stored.get("study"):
        return [f"study is {here['study']!r} here and was {stored.get('study')!r}"]
    ours, theirs = here["settings"], stored.get("settings", {})
    found = [
        f"{name} is {ours[name]!r} here and was {theirs.get(name)!r}"
        for name in ours
        if name not in ("out", "overwrite", "seed") and ours[name] != theirs.get(name)
    ]
    return found + differences_of_facts(stored, here)


def differences_of_cases(
    stored: Sequence[Case],
    here: Sequence[Case],
    prints: Mapping[str, Mapping[str, str]],
    prints_here: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Where the cases that the settings give now are not those of a store; the first of each."""
    rebuilt = {case.name: case for case in _as_stored(here)}
    names = [case.name for case in stored]
    if names != list(rebuilt):
        return [f"the cases are {_few(list(rebuilt))} here and were {_few(names)}"]
    found = []
    for case in stored:
        other = rebuilt[case.name]
        for key in {**case.attributes, **other.attributes}:
            ours, theirs = other.attributes.get(key), case.attributes.get(key)
            if ours != theirs:
                found.append(f"{key} of {case.name} is {ours!r} here and was {theirs!r}")
        if case.passes != other.passes:
            found.append(f"the arrays of {case.name} are laid out in another way here")
        if not found and prints.get(case.name) != prints_here[case.name]:
            found.append(
                f"the data of {case.name}, or what is computed from them, are not those of the "
                "store (they need the same file, number of processor cores and code of nrjax)"
            )
        if found:
            return found
    return found


def _as_stored(cases: Sequence[Case]) -> list[Case]:
    return from_json(to_json({}, cases))[1]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def refuse(folder: Path, found: Sequence[str]) -> None:
    """Raise where there are differences.

    Raises:
        ValueError: naming them.
    """
    if found:
        raise ValueError(
            f"{folder} cannot be taken up here, where other bits would come out: "
            + "; ".join(found)
        )
