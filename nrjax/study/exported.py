"""Programs of the papers' studies kept from run to run: a second run does not trace them again.

JAX's own cache of compilations is asked by the text of a program, for which it must be traced and
lowered: in a second run this took longer than the trials. Here the text is kept, as JAX exports it,
and compiled, or found in JAX's cache, like any other.

A text is right only where all is known that it was made of. That is so of the command `nrjax` and a
study that comes with nrjax: all code is this package's own, in the versions that are named, as it
was when the process began. A study of a user's own is traced in each process.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import platform
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from nrjax import _command
from nrjax.papers import PAPERS
from nrjax.simulation import folding
from nrjax.simulation.program import _on_devices
from nrjax.study import identity
from nrjax.study.folder import write_whole

_DIGEST = hashlib.sha256().digest_size
_MADE_BY = ("numpy", "ml_dtypes", "optax", "chex")
"""Packages whose code is traced too, beside JAX."""

for _kind in (folding.Folded, folding.Blocks):
    jax.export.register_namedtuple_serialization(_kind, serialized_name=f"nrjax.{_kind.__name__}")


class Exported:
    """Launches programs as `_on_devices` does, to the same bits, by what is in a folder.

    Args:
        folder: for the files; made where there is none.
        source: digest of the package's code, of which all that is launched is made.
    """

    def __init__(self, folder: Path, source: str):
        self._folder, self._source = folder, source
        versions = {name: importlib.metadata.version(name) for name in _MADE_BY}
        self._facts = identity.circumstances(), versions, platform.python_version(), source
        self._found: dict[str, Callable[..., Any]] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def __call__(self, *arrays: Any, **static: Any) -> Any:
        """As `_on_devices`."""
        return self._program(arrays, static)(*_plain(arrays))

    def lower(self, *arrays: Any, **static: Any) -> Any:
        """As `_on_devices.lower`."""
        program: Any = self._program(arrays, static)
        return program.lower(*_plain(arrays))

    def _program(self, arrays: tuple[Any, ...], static: dict[str, Any]) -> Callable[..., Any]:
        name = self._name(arrays, static)
        with self._locks[name]:
            if name not in self._found:
                self._found[name] = self._made(self._folder / name, arrays, static)
            return self._found[name]

    def _made(
        self, path: Path, arrays: tuple[Any, ...], static: dict[str, Any]
    ) -> Callable[..., Any]:
        everywhere, split = (
            NamedSharding(static["mesh"], PartitionSpec(*of)) for of in ((), ("trials",))
        )
        places: Any = {"in_shardings": (everywhere, everywhere, split, split)}
        with contextlib.suppress(Exception):  # there is no file, or it is damaged
            return jax.jit(_read(path).call, **places)
        plain = jax.jit(_of_leaves(arrays, static), **places, out_shardings=split)
        found = jax.export.export(plain)(*_plain(arrays))
        # What cannot be written, or was made while files were edited, is made again next time.
        with contextlib.suppress(OSError):
            if source() == self._source:
                data = bytes(found.serialize())
                self._folder.mkdir(parents=True, exist_ok=True)
                write_whole(path, hashlib.sha256(data).digest() + data)
        return jax.jit(found.call, **places)

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


def of_study(name: str | None) -> Exported | None:
    """Those beside JAX's cache of compilations, for a study; None where they are not to be used.

    That is where the study, or the process, may have code that is not nrjax's, where that was
    edited, where JAX's cache is off or on no disk, and on devices other than CPUs.
    """
    folder: Any = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    on = jax.config.jax_enable_compilation_cache and folder and "://" not in folder  # pyright: ignore[reportAttributeAccessIssue]
    known = name in PAPERS and _command.is_command()
    if not (known and on and jax.default_backend() == "cpu"):
        return None
    code = source()
    return None if code is None else Exported(Path(folder) / "nrjax", code)


def source() -> str | None:
    """Digest of the package's code; None where it is not that with which this process began."""
    whole, root = hashlib.sha256(), Path(_command.__file__).parent
    files = sorted(root.rglob("*.py"))
    for file in files:
        if file.stat().st_ctime >= _command.BEGUN:
            return None
        whole.update(f"{file.relative_to(root)} {file.stat().st_size} ".encode())
        whole.update(file.read_bytes())
    return whole.hexdigest() if files else None


def _plain(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of `_on_devices` without classes of our own, which JAX does not export."""
    trial, key, *rest = arrays
    return jax.tree.leaves(trial), jax.random.key_data(key), *rest


def _of_leaves(arrays: tuple[Any, ...], static: dict[str, Any]) -> Callable[..., Any]:
    """`_on_devices` as a function of these."""
    structure, kind = jax.tree.structure(arrays[0]), jax.random.key_impl(arrays[1])
    launch: Any = _on_devices

    @functools.wraps(launch.__wrapped__)  # by whose name JAX tells of it
    def run(leaves: Any, bits: Any, firsts: Any, counts: Any) -> Any:
        trial = jax.tree.unflatten(structure, leaves)
        key = jax.random.wrap_key_data(bits, impl=kind)
        return launch.__wrapped__(trial, key, firsts, counts, **static)

    return run


def _read(path: Path) -> Any:
    content = path.read_bytes()
    if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
        raise ValueError("damaged")
    return jax.export.deserialize(bytearray(content[_DIGEST:]))
