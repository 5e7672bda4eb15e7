"""What a run's bits depend on, and how another machine, version or study differs from it."""

import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

import nrjax
from nrjax._format import format_value
from nrjax._threefry import STREAM
from nrjax._tracing import sharing_traces
from nrjax._validation import check
from nrjax.keys import study_key
from nrjax.study.checks import check_mapping, strict_json
from nrjax.study.layout import Case, from_json, to_json
from nrjax.study.machine import processor
from nrjax.study.passes import PassSpec
from nrjax.study.store import Store

_REMEDIES = {
    "nrjax": "install nrjax {} from its source code",
    **{name: f'pip install "{name}=={{}}"' for name in ("jax", "jaxlib")},
    "device": "set JAX_PLATFORMS={}",
    "device_kind": "a device of that kind",
    "cpu": "a processor of that kind",
    "cpu_features": "a processor with these",
    "xla_flags": "set XLA_FLAGS={!r}",
    "disable_most_optimizations": "set JAX_DISABLE_MOST_OPTIMIZATIONS={}",
    "threefry_partitionable": "set JAX_THREEFRY_PARTITIONABLE={}",
    "stream": "an nrjax whose seeds give those bits",
}
"""What a run's bits depend on, and what is right where it differs."""


_NO_BITS = ("--xla_force_host_platform_device_count", "--xla_dump")
"""Flags of XLA's, or their beginnings, that change no bits."""

PROGRAM = 16
"""Characters of a fingerprint that are of the program alone."""


def circumstances() -> dict[str, Any]:
    """What bits depend on besides the study: versions, device, processor, precision."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    return {
        "nrjax": nrjax.__version__,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "platform": platform.platform(),
        "device": jax.local_devices()[0].platform,
        "device_kind": jax.local_devices()[0].device_kind,
        **processor(),
        "precision": str(jnp.result_type(float)),
        "stream": STREAM,
        "xla_flags": " ".join(sorted(flag for flag in flags if not flag.startswith(_NO_BITS))),
        "disable_most_optimizations": bool(jax.config.read("jax_disable_most_optimizations")),
        "threefry_partitionable": bool(jax.config.jax_threefry_partitionable),  # pyright: ignore[reportAttributeAccessIssue]
    }


@sharing_traces()
def fingerprints(plans: Mapping[str, Mapping[str, PassSpec]]) -> dict[str, dict[str, str]]:
    """Of what is computed in each pass of each case: the program, and the numbers it works on.

    The program is that of one trial, as JAX traces it, and what of its batches shows in bits;
    names, comments and devices do not count. Its digest is the first `PROGRAM` characters.
    """
    # With the array, so that its number is given to no other.
    known: dict[int, tuple[Any, bytes]] = {}
    programs: dict[Any, bytes] = {}

    def digest(leaf: Any) -> bytes:
        if id(leaf) not in known:
            array = np.ascontiguousarray(leaf)
            whole = hashlib.sha256(f"{array.dtype.str}{np.shape(leaf)}".encode())
            whole.update(array.tobytes())
            known[id(leaf)] = leaf, whole.digest()
        return known[id(leaf)][1]

    def program(function: Any, trial: Any) -> bytes:
        leaves, structure = jax.tree.flatten(trial)
        # By what they look like too: 1, 1.0 and True are equal, and so are weak and strong types.
        kind = (function, structure, repr(structure), tuple(map(jax.typeof, leaves)))
        if kind not in programs:
            # A function of its own, or JAX may give what it traced before an edit.
            closed = jax.make_jaxpr(lambda *of: function(*of))(trial, study_key(0))
            programs[kind] = _digest(closed, digest)
            if _has_rules(closed.jaxpr):
                batched = jax.vmap(lambda *of: function(*of), (None, 0))
                closed = jax.make_jaxpr(batched)(trial, jax.random.split(study_key(0)))
                programs[kind] += _digest(closed, digest)
        return programs[kind]

    def fingerprint(plan: PassSpec) -> str:
        options = plan.make().options
        # A single lane may round otherwise than several.
        batch = f"{options.tile} {options.lanes == 1}".encode()
        first = hashlib.sha256(program(*plan.meaning) + batch)
        rest = hashlib.sha256(b"".join(map(digest, jax.tree.leaves(plan.meaning[1]))))
        return first.hexdigest()[:PROGRAM] + rest.hexdigest()[:PROGRAM]

    return {
        case: {name: fingerprint(plan) for name, plan in passes.items()}
        for case, passes in plans.items()
    }


def _digest(traced: core.ClosedJaxpr, number: Callable[[Any], bytes]) -> bytes:
    """Of what a traced program computes, with all of its constants, wherever they are kept.

    Names, places in memory and comments do not count. `number` is the digest of an array.

    Raises:
        ValueError: it calls back into Python, whose code cannot be seen.
    """
    whole = hashlib.sha256()
    for part in _parts(traced.jaxpr, number):
        whole.update(part)
    for constant in traced.consts:
        whole.update(number(constant))
    return whole.digest()


def _parts(jaxpr: core.Jaxpr, number: Callable[[Any], bytes]) -> Iterator[bytes]:
    places: dict[Any, int] = {}

    def place(variable: Any) -> str:
        if isinstance(variable, core.Literal):
            return f"{variable.aval} {np.asarray(variable.val).tobytes().hex()}"
        return f"{places.setdefault(variable, len(places))}:{variable.aval}"

    def row(variables: Any) -> str:
        return ",".join(map(place, variables))

    yield f"({row([*jaxpr.constvars, *jaxpr.invars])})".encode()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in ("pure_callback", "io_callback"):
            raise ValueError(
                f"the study calls jax.{name}: what it computes must be in JAX, for its runs to be "
                "known again"
            )
        yield f"{row(equation.outvars)}={name}({row(equation.invars)})".encode()
        for key, value in sorted(equation.params.items()):
            if key != "name":
                yield key.encode()
                yield from _parameter(value, number)
    yield f"->{row(jaxpr.outvars)};".encode()


def _has_rules(jaxpr: core.Jaxpr) -> bool:
    """Whether there are rules of batching (`jax.custom_batching`), which only a batch shows."""
    own = any(equation.primitive.name == "custom_vmap_call" for equation in jaxpr.eqns)
    return own or any(map(_has_rules, core.subjaxprs(jaxpr)))


def _parameter(value: Any, number: Callable[[Any], bytes]) -> Iterator[bytes]:
    if isinstance(value, core.ClosedJaxpr):
        yield _digest(value, number)
    elif isinstance(value, core.Jaxpr):
        yield from _parts(value, number)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parameter(one, number)
            yield b","
    elif isinstance(value, np.ndarray | jax.Array):
        yield number(value)
    elif not callable(value):
        yield re.sub(r" at 0x[0-9a-f]+", "", str(value)).encode()


def unlike(stored: Mapping[str, Any], here: Mapping[str, Any], of: str = "") -> list[str]:
    """What is another here than it was, by name."""
    return [
        f"{name}{of} is {value!r} here and was {stored.get(name)!r}"
        for name, value in here.items()
        if value != stored.get(name)
    ]


def differences(stored: Mapping[str, Any]) -> list[str]:
    """Where this process would give other bits than the one that had these circumstances."""
    here = circumstances()
    stored = {"stream": 1} | dict(stored)  # of which earlier versions say nothing
    wide = stored.get("precision") == "float64"
    precision = "set JAX_ENABLE_X64=1" if wide else "unset JAX_ENABLE_X64"
    return [
        f"{said} ({remedy.format(stored.get(name))})"
        for name, remedy in {**_REMEDIES, "precision": precision}.items()
        if here["device"] == "cpu" or not name.startswith("cpu")
        for said in unlike(stored, {name: here[name]})
    ]


def differences_of_cases(
    store: Store, here: Sequence[Case], prints: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Where the cases that the study has now are not those of a store; of the first such case."""
    rebuilt = {case.name: case for case in from_json(to_json({}, here))[1]}
    stored = store.settings.get("fingerprints", {})
    if list(store.cases) != list(rebuilt):
        now, then = format_value(list(rebuilt)), format_value(list(store.cases))
        return [f"the cases are {now} here and were {then}"]
    for name, case in store.cases.items():
        other = rebuilt[name]
        # Earlier versions did not name the notion, which follows from what is computed.
        own = {"notion": other.attributes.get("notion")} | case.attributes
        labels = {key: other.attributes.get(key) for key in own | other.attributes}
        found = unlike(own, labels, f" of {name}")
        if case.passes != other.passes:
            found.append(f"what is kept of {name} is laid out in another way here")
        if not found and stored.get(name) != prints[name]:
            found.append(
                f"what is computed of {name}, or the data it is computed from, are not those "
                "of the store (it needs the same file, number of processor cores and code)"
            )
        if found:
            return found
    return []


def refuse(folder: Path, found: Sequence[str]) -> None:
    """Raise ValueError where there are differences, naming them."""
    if found:
        raise ValueError(
            f"{folder} cannot be taken up here, where other bits would come out: "
            f"{'; '.join(found)}: go on as it was begun, or begin another run in another folder"
        )


def refuse_options(store: Store, asked: Mapping[str, Any]) -> None:
    """Check that options which a run keeps for good are asked for as it was started with."""
    for name, value in asked.items():
        stored = store.settings["settings"].get(name)
        right = (
            f"{stored!r}, with which the run in {store.folder} was started: leave it out, choose "
            "another folder, or replace the run with overwrite=True"
        )
        check(value == stored, name, value, right)


_FACTS = ("study", "source", "seed", "settings", "fingerprints")
"""What a store says of its run, besides the circumstances."""


def checked_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's facts as strict JSON; raises ValueError if a name is the store's."""
    check_mapping("facts", facts, "strict JSON")
    taken = sorted(set(facts) & {*_FACTS, *circumstances()}) if facts else []
    check(not taken, "facts", taken, "names that the store has no other meaning for")
    return {name: strict_json(f"facts[{name!r}]", value) for name, value in facts.items()}
