"""Programs of the papers' studies kept from run to run: a second run does not trace them again.

JAX's own cache of compilations is asked by the text of a program, for which it must be traced and
lowered: in a second run this took longer than the trials. Here the text is kept, as JAX exports it,
and compiled, or found in JAX's cache, like any other.

A text is right only where all is known that it was made of. That is so of the command `nrjax` and a
study that comes with nrjax: all code is this package's own, in the versions that are named, as it
was when the process began. A study of a user's own is traced in each process.
"""

import base64
import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jaxlib
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
        source: digest of the code that runs, of which all that is launched is made.
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
        plain.trace(*_plain(arrays))  # what is wrong with a program is raised
        # What cannot be exported is run as it is; what cannot be written, or was made while files
        # were edited, is made again next time.
        with contextlib.suppress(Exception):
            found = jax.export.export(plain)(*_plain(arrays))
            made = jax.jit(found.call, **places)
            made.lower(*_plain(arrays))
            if _unedited():
                data = bytes(found.serialize())
                self._folder.mkdir(parents=True, exist_ok=True)
                write_whole(path, hashlib.sha256(data).digest() + data)
            return made
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


def of_study(name: str | None) -> Exported | None:
    """Those beside JAX's cache of compilations, for a study; None where they are not to be used.

    That is where the study, or the process, may have code that is not nrjax's, where that was
    edited, where JAX's cache is off or on no disk, and on devices other than CPUs.
    """
    folder: Any = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    on = jax.config.jax_enable_compilation_cache and folder and "://" not in folder  # pyright: ignore[reportAttributeAccessIssue]
    # JAX's older partitioner does not lower what was exported.
    shardy = getattr(jax.config, "jax_use_shardy_partitioner", True)
    if not (name in PAPERS and on and shardy and jax.default_backend() == "cpu" and _is_command()):
        return None
    return Exported(Path(folder) / "nrjax", _executed()) if _unedited() else None


def _unedited() -> bool:
    return _command.AT_FIRST is not None and _command.code() == _command.AT_FIRST


def _is_command() -> bool:
    """Whether the process was begun by what was installed, not by a program that calls it."""
    main: Any = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return main.__spec__.name == "nrjax.__main__"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, OSError, AttributeError):
        script = Path(main.__file__).resolve()
        for file in importlib.metadata.distribution("nrjax").files or ():
            if Path(str(file.locate())).resolve() == script and file.hash is not None:
                digest = hashlib.new(file.hash.mode, script.read_bytes()).digest()
                return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
    return False


def _executed() -> str:
    """Digest of the code that runs: the package's, and JAX's files by their sizes and times.

    Of the modules that are loaded also as Python has compiled them, which may be older than the
    files seem to be, and by what it chooses between the two: a file's time.
    """
    whole = hashlib.sha256(str(_command.AT_FIRST).encode())
    for name, module in sorted(sys.modules.items()):
        compiled = getattr(module, "__cached__", None)
        if name.split(".")[0] == "nrjax" and compiled and os.path.exists(compiled):
            time = os.stat(str(module.__file__)).st_mtime_ns
            whole.update(f"{name} {time} ".encode() + Path(compiled).read_bytes())
    for package in (jax, jaxlib):
        for folder, below, files in os.walk(Path(str(package.__file__)).parent, followlinks=True):
            below.sort()
            for file in sorted(one for one in files if one.endswith((".py", ".so"))):
                path = os.path.join(folder, file)
                about = os.stat(path)
                whole.update(f"{path} {about.st_size} {about.st_mtime_ns} ".encode())
    return whole.hexdigest()


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
