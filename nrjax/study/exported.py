"""Programs kept from run to run as JAX exports them: a second run does not trace them.

JAX's own cache of compilations is asked by the text of a program, for which it must be traced and
lowered: in a study's second run this took longer than its trials. Here a program is known by the
fingerprint of one trial (`identity`), by its shapes and options, and by all that JAX and nrjax make
of them; its text is then compiled, or found in JAX's cache, like any other.
"""

import contextlib
import functools
import hashlib
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from nrjax.simulation import folding
from nrjax.simulation.program import _on_devices
from nrjax.study import identity
from nrjax.study.folder import write_whole

_DIGEST = hashlib.sha256().digest_size

for _kind in (folding.Folded, folding.Blocks):
    jax.export.register_namedtuple_serialization(_kind, serialized_name=f"nrjax.{_kind.__name__}")

_FOUND: dict[Any, Callable[..., Any]] = {}
"""Programs of this process, by name and devices."""

_LOCKS: defaultdict[Any, threading.Lock] = defaultdict(threading.Lock)


class Exported:
    """Launches a `Program` as `_on_devices` does, to the same bits, by what is in a folder.

    What JAX cannot export is traced each time. Of a user's own code all is known that a trial's
    program shows; a rule for batching (`jax.custom_batching`) is no part of that.

    Args:
        folder: for the files; made where there is none.
    """

    def __init__(self, folder: Path):
        self._folder, self._facts = folder, (identity.circumstances(), _source())

    def __call__(self, *arrays: Any, **static: Any) -> Any:
        """As `_on_devices`."""
        return self._program(arrays, static)(*_plain(arrays))

    def lower(self, *arrays: Any, **static: Any) -> Any:
        """As `_on_devices.lower`."""
        program: Any = self._program(arrays, static)
        return program.lower(*_plain(arrays))

    def _program(self, arrays: tuple[Any, ...], static: dict[str, Any]) -> Callable[..., Any]:
        name, devices = self._name(arrays, static), tuple(static["mesh"].devices.flat)
        with _LOCKS[name, devices]:
            if (name, devices) not in _FOUND:
                _FOUND[name, devices] = self._made(self._folder / name, arrays, static)
            return _FOUND[name, devices]

    def _made(
        self, path: Path, arrays: tuple[Any, ...], static: dict[str, Any]
    ) -> Callable[..., Any]:
        mesh = static["mesh"]
        everywhere, split = (NamedSharding(mesh, PartitionSpec(*of)) for of in ((), ("trials",)))
        places: Any = {"in_shardings": (everywhere, everywhere, split, split)}
        plain = jax.jit(_of_leaves(arrays, static), **places, out_shardings=split)
        if {one.platform for one in mesh.devices.flat} != {"cpu"} or jax.default_backend() != "cpu":
            return plain  # it was tried on CPUs alone, and exports are for the default platform
        # Whatever is wrong with a file, and whatever cannot be exported.
        with contextlib.suppress(Exception):
            return jax.jit(_read(path).call, **places)
        with contextlib.suppress(Exception):
            found = jax.export.export(plain)(*_plain(arrays))
            with contextlib.suppress(Exception):
                data = bytes(found.serialize())
                self._folder.mkdir(parents=True, exist_ok=True)
                write_whole(path, hashlib.sha256(data).digest() + data)
            return jax.jit(found.call, **places)
        return plain

    def _name(self, arrays: tuple[Any, ...], static: dict[str, Any]) -> str:
        """What is run, as the name of a file: the same in every process."""
        trial, key, *rest = arrays
        leaves, structure = jax.tree.flatten(trial)
        forms = [*map(jax.typeof, (*leaves, *rest)), jax.random.key_impl(key)]
        # As they are in this thread; some change what is traced.
        flags = {name: getattr(jax.config, name, None) for name in sorted(jax.config.values)}
        said = (*self._facts, flags, static | {"mesh": static["mesh"].size}, structure, forms)
        text = re.sub(r" at 0x[0-9a-f]+", "", repr(said))
        return hashlib.sha256(text.encode()).hexdigest()


def from_cache() -> Exported | None:
    """Those beside JAX's own cache of compilations; None where that is not on a disk, or off."""
    folder: Any = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    on = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    return Exported(Path(folder) / "nrjax") if on and folder and "://" not in folder else None


def _plain(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of `_on_devices` without classes of our own, which JAX does not export."""
    trial, key, *rest = arrays
    return jax.tree.leaves(trial), jax.random.key_data(key), *rest


def _of_leaves(arrays: tuple[Any, ...], static: dict[str, Any]) -> Callable[..., Any]:
    """`_on_devices` as a function of these."""
    structure, kind = jax.tree.structure(arrays[0]), jax.random.key_impl(arrays[1])
    launch: Any = _on_devices

    def run(leaves: Any, bits: Any, firsts: Any, counts: Any) -> Any:
        trial, key = (
            jax.tree.unflatten(structure, leaves),
            jax.random.wrap_key_data(bits, impl=kind),
        )
        return launch.__wrapped__(trial, key, firsts, counts, **static)

    run.__name__ = launch.__name__  # by which JAX tells of it
    return run


def _read(path: Path) -> Any:
    content = path.read_bytes()
    if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
        raise ValueError("damaged")
    return jax.export.deserialize(bytearray(content[_DIGEST:]))


@functools.cache
def _source() -> str:
    """Digest of the package's own code."""
    whole = hashlib.sha256()
    for file in sorted(Path(identity.__file__).parents[1].rglob("*.py")):
        whole.update(file.read_bytes())
    return whole.hexdigest()
