"""The environment and fingerprints of a run, and checks that a later call matches them."""

import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from nrjax._base.format import format_value
from nrjax._base.keys import study_key
from nrjax._base.threefry import STREAM
from nrjax._base.tracing import sharing_traces
from nrjax._base.validation import check
from nrjax._base.version import __version__
from nrjax.study.checks import check_mapping, strict_json
from nrjax.study.fingerprint import PROGRAM, Fingerprint, digest, leaf_of
from nrjax.study.passes import CasePass
from nrjax.study.schema import StoredCase, to_json
from nrjax.study.store import Store

_REMEDIES = {
    "nrjax": "install nrjax {} from its source code",
    **{name: f'pip install "{name}=={{}}"' for name in ("jax", "jaxlib")},
    "device": "set JAX_PLATFORMS={}",
    "device_kind": "use a device of that kind",
    "cpu": "use a processor of that kind",
    "cpu_features": "use a processor with these",
    "xla_flags": "set XLA_FLAGS={!r}",
    "disable_most_optimizations": "set JAX_DISABLE_MOST_OPTIMIZATIONS={}",
    "threefry_partitionable": "set JAX_THREEFRY_PARTITIONABLE={}",
    "stream": "install an nrjax whose seeds give those bits",
}
"""The facts of the environment that change results, with the remedy for a difference."""

_FLAGS_WITHOUT_EFFECT = ("--xla_force_host_platform_device_count", "--xla_dump")
"""The prefixes of XLA flags that do not change results."""

_SHOWN = 8
"""The largest number of passes, or of changes, that a message lists."""

_FACTS = ("study", "source", "seed", "settings", "fingerprints")
"""The names of facts that a store records in addition to the environment."""


def environment() -> dict[str, Any]:
    """Return the versions, device, processor and JAX settings that may change results."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept = sorted(flag for flag in flags if not flag.startswith(_FLAGS_WITHOUT_EFFECT))
    return {
        "nrjax": __version__,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "platform": platform.platform(),
        "device": jax.local_devices()[0].platform,
        "device_kind": jax.local_devices()[0].device_kind,
        **_processor(),
        "precision": str(jnp.result_type(float)),
        "stream": STREAM,
        "xla_flags": " ".join(kept),
        "disable_most_optimizations": bool(jax.config.read("jax_disable_most_optimizations")),
        "threefry_partitionable": bool(jax.config.jax_threefry_partitionable),  # pyright: ignore[reportAttributeAccessIssue]
    }


def _processor() -> dict[str, str]:
    """Return the processor's model and vector instructions, on which XLA's code depends."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return {"cpu": platform.processor() or platform.machine(), "cpu_features": ""}
    fields = dict(re.findall(r"^(\S[^\t:]*?)\s*:\s*(.*)$", text, re.MULTILINE))
    flags = fields.get("flags", fields.get("Features", "")).split()
    vector = ("sse", "avx", "fma", "f16c", "amx", "asimd", "sve")
    return {
        "cpu": fields.get("model name", platform.machine()),
        "cpu_features": " ".join(sorted({flag for flag in flags if flag.startswith(vector)})),
    }


def fingerprints(passes: Mapping[str, Mapping[str, CasePass]]) -> dict[str, dict[str, str]]:
    """Return the fingerprint of each pass, by case and pass, as a store records it.

    Raises:
        ValueError: a trial calls back into Python.
    """
    return {
        case: {name: each.value for name, each in found.items()}
        for case, found in identify(passes).items()
    }


@sharing_traces()
def identify(
    passes: Mapping[str, Mapping[str, CasePass]],
) -> dict[str, dict[str, Fingerprint]]:
    """Return a fingerprint of the program and the data of each pass, by case and pass.

    The program is the text to which JAX lowers one trial, and the size of a tile. It includes
    constants that functions close over, but no names, comments or devices. The first `PROGRAM`
    characters of a fingerprint depend on the program only.

    Raises:
        ValueError: a trial calls back into Python.
    """
    # The keys are ids of leaves. A leaf is kept so that Python does not reuse its id.
    leaves: dict[int, tuple[Any, bytes]] = {}
    programs: dict[Any, tuple[str, list[np.ndarray]]] = {}

    def digest_once(leaf: Any) -> bytes:
        if id(leaf) not in leaves:
            leaves[id(leaf)] = leaf, digest(leaf)
        return leaves[id(leaf)][1]

    def fingerprint(spec: CasePass) -> Fingerprint:
        function, trial = spec.one_trial, spec.trial
        located, structure = jax.tree.flatten_with_path(trial)
        arrays = [array for _, array in located]
        # 1, 1.0 and True are equal, but their representations differ.
        kind = (function, structure, repr(structure), tuple(map(jax.typeof, arrays)))
        if kind not in programs:
            programs[kind] = _lowered(function, trial)
        text, constants = programs[kind]
        options = spec.program().options
        # A program with one lane may round differently from a program with several.
        batch = f"{options.tile} {options.lanes == 1}".encode()
        parts = (text.encode(), *(array.tobytes() for array in constants), batch)
        hashes = list(map(digest_once, arrays))
        return Fingerprint(
            program=hashlib.sha256(b"".join(parts)).hexdigest()[:PROGRAM],
            data=hashlib.sha256(b"".join(hashes)).hexdigest()[:PROGRAM],
            tile=options.tile,
            lanes=options.lanes or options.tile,
            leaves=tuple(
                leaf_of(jax.tree_util.keystr(path) or "trial", array, hashed)
                for (path, array), hashed in zip(located, hashes, strict=True)
            ),
            constants=tuple(
                leaf_of(f"constant {number}", array, digest(array))
                for number, array in enumerate(constants)
            ),
            text=text,
        )

    return {
        case: {name: fingerprint(spec) for name, spec in specs.items()}
        for case, specs in passes.items()
    }


def _lowered(function: Any, trial: Any) -> tuple[str, list[np.ndarray]]:
    """Return the text to which JAX lowers one trial, with numbers in place of function names.

    The second result has the arrays that functions close over, if the text leaves them out. If the
    trial has rules for batching (`jax.custom_batching`), a batch is lowered instead, so that the
    text includes the rules.
    """
    # A new function each time, since JAX may reuse a trace from before an edit of the code.
    traced = jax.jit(lambda *arguments: function(*arguments)).trace(trial, study_key(0))
    names = {equation.primitive.name for equation in _equations(traced.jaxpr.jaxpr)}
    for name in ("pure_callback", "io_callback"):
        if name in names:
            raise ValueError(
                f"the study calls jax.{name}, whose Python code a fingerprint cannot see, so that "
                "its runs could not be resumed safely. Write it in JAX"
            )
    if "custom_vmap_call" in names:
        batched = jax.vmap(lambda *arguments: function(*arguments), (None, 0))
        traced = jax.jit(batched).trace(trial, jax.random.split(study_key(0)))
    text = traced.lower().as_text()
    defined = re.findall(r"func\.func \w+ @([\w.$-]+)", text)
    numbers = {name: str(number) for number, name in enumerate(defined)}
    text = re.sub(r"@([\w.$-]+)", lambda match: "@" + numbers.get(match[1], match[1]), text)
    # With jax_use_simplified_jaxpr_constants the text lacks arrays that functions close over.
    constants = [
        np.asarray(variable.val)
        for equation in _equations(traced.jaxpr.jaxpr)
        for variable in equation.invars
        if isinstance(variable, core.Literal) and np.ndim(variable.val)
    ]
    return text, constants


def _equations(jaxpr: core.Jaxpr) -> Iterator[Any]:
    """Yield the equations of a program and of its subprograms."""
    for equation in jaxpr.eqns:
        yield equation
        for leaf in jax.tree.leaves(equation.params):
            part = leaf.jaxpr if isinstance(leaf, core.ClosedJaxpr) else leaf
            if isinstance(part, core.Jaxpr):  # JAX 0.8 has no `core.subjaxprs`
                yield from _equations(part)


def changed(
    stored: Mapping[str, Any], current: Mapping[str, Any], owner: str = "", kind: str = ""
) -> list[str]:
    """Return a phrase for each current fact that differs from the stored fact of that name.

    `kind` comes before the name of the fact, such as "the setting ", and `owner` after it.
    """
    return [
        f"{kind}{name}{owner} is {value!r} here and was {stored.get(name)!r}"
        for name, value in current.items()
        if value != stored.get(name)
    ]


def environment_changes(stored: Mapping[str, Any]) -> list[str]:
    """Return phrases on the differences to the stored environment that change results.

    Each phrase ends with a remedy.
    """
    current = environment()
    is_wide = stored.get("precision") == "float64"
    precision = "set JAX_ENABLE_X64=1" if is_wide else "unset JAX_ENABLE_X64"
    return [
        f"{phrase} ({remedy.format(stored.get(name))})"
        for name, remedy in {**_REMEDIES, "precision": precision}.items()
        if current["device"] == "cpu" or not name.startswith("cpu")
        for phrase in changed(stored, {name: current[name]})
    ]


def case_changes(
    store: Store,
    cases: Sequence[StoredCase],
    prints: Mapping[str, Mapping[str, str]] | None,
) -> list[str]:
    """Return phrases on how the cases of a study differ from the stored cases.

    `prints` are fingerprints of the study's passes. If None, only the names, labels and arrays of
    the cases are compared. Fingerprints are compared only if all of these agree.
    """
    current = {case["name"]: StoredCase.from_dict(case) for case in to_json({}, cases)["cases"]}
    if list(store.cases) != list(current):
        now, before = format_value(list(current)), format_value(list(store.cases))
        return [f"the cases are {now} here and were {before}"]
    changes = []
    for name, case in store.cases.items():
        names = case.attributes | current[name].attributes
        labels = {key: current[name].attributes.get(key) for key in names}
        changes += changed(case.attributes, labels, f" of {name}")
        if case.passes != current[name].passes:
            changes.append(f"the arrays that are kept of {name} differ")
    return changes or fingerprint_changes(store, prints or {})


def fingerprint_changes(store: Store, prints: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return phrases on the passes whose code or data differ from those of a stored run."""
    stored = store.settings.get("fingerprints", {})
    missing, code, data = [], [], []
    for case, current in prints.items():
        for name, value in current.items():
            before = stored.get(case, {}).get(name)
            if before is None:
                missing.append(f"{case}/{name}")
                continue
            if before[:PROGRAM] != value[:PROGRAM]:
                code.append(f"{case}/{name}")
            if before[PROGRAM:] != value[PROGRAM:]:
                data.append(f"{case}/{name}")
    from_python = store.settings.get("source") is None
    shown = "Study.fingerprints()" if from_python else f"nrjax fingerprint {store.folder}"
    found = (
        (code, "the code", f"differs (use the Python files and batching of then; see {shown})"),
        (data, "the data", f"differ (use the same files, numbers and cores; see {shown})"),
        (missing, "the fingerprint", "is not recorded"),
    )
    return [f"{part} of {_listed(names)} {remedy}" for names, part, remedy in found if names]


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    """Return a list as text: the first few, and the number of the others."""
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return separator.join([*names[:_SHOWN], *more])


def refuse_changes(folder: Path, changes: Sequence[str]) -> None:
    """Raise ValueError with a list of `changes`, unless it is empty."""
    if changes:
        raise ValueError(
            f"the run in {folder} cannot be resumed, since its results would differ. Changed since "
            f"it was started: {_listed(changes, '; ')}. Undo this, or start a new run in another "
            "folder"
        )


def refuse_options(store: Store, options: Mapping[str, Any]) -> None:
    """Raise ValueError if one of these options differs from the option stored for the run."""
    for name, value in options.items():
        stored = store.settings["settings"].get(name)
        expected = f"{stored!r}, with which the run in {store.folder} was started"
        hint = (
            "Leave it out, choose another folder, or replace the run (overwrite=True, --overwrite)."
        )
        check(value == stored, name, value, expected, hint)


def checked_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's facts as strict JSON, or raise ValueError for a name that is taken."""
    check_mapping("facts", facts, "strict JSON")
    taken = sorted(set(facts) & {*_FACTS, *environment()}) if facts else []
    check(not taken, "facts", taken, "of other names than those that the store uses")
    return {name: strict_json(f"facts[{name!r}]", value) for name, value in facts.items()}
