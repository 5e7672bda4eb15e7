"""What users' functions read besides their arguments, as a part of the keys of compiled programs.

JAX compiles a function once for each structure of its arguments, and does not see that a variable
that the function reads has changed since then. nrjax's own programs are then compiled again.
"""

import functools
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from nrjax._base.placing import placed

_NUMBERS = (bool, int, float, complex, str, bytes, type(None), np.generic, Enum)
_DEEPEST = 8
"""Largest number of references that are followed, one after the other."""


class _Identity:
    """An object that equals itself alone. It is kept alive only if it has no weak references."""

    def __init__(self, value: Any):
        self.number = id(value)
        try:
            self.reference = weakref.ref(value)
        except TypeError:
            self.reference = lambda: value

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, _Identity):
            return NotImplemented
        value = self.reference()
        return value is not None and value is other.reference()


def jit_with_captured(function: Callable[..., Any], static_argnums: tuple[int, ...] = ()) -> Any:
    """Return a compiled function, which is compiled again if what its arguments read changes.

    Args:
        function: function of positional arguments, among them parts of users with functions.
        static_argnums: as for `jax.jit`.

    Returns:
        The function. Its attribute `jitted` is the function under `jax.jit`.
    """

    def program(captured: Hashable, *arguments: Any) -> Any:
        del captured  # part of the cache key
        return function(*arguments)

    jitted = jax.jit(program, static_argnums=(0, *(number + 1 for number in static_argnums)))

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        return jitted(captured(arguments), *placed(arguments))

    called.jitted = jitted  # pyright: ignore[reportAttributeAccessIssue]
    return called


def captured(tree: Any) -> Hashable:
    """Return a key that changes if variables change that the functions in a tree read.

    These are variables of modules and of enclosing functions, defaults, attributes of classes, and
    what functions read that they call. NumPy arrays, numbers, containers and objects of users'
    classes count by their contents, other objects by their identity. Modules and functions of
    installed packages are not followed.
    """
    return tuple(_parts(tree, set()))


@functools.lru_cache(maxsize=4096)
def _role(kind: type) -> str:
    """Return what an object of this class is, as an argument: a "leaf" reads nothing."""
    if issubclass(kind, (jax.Array, Tracer, np.ndarray, type, *_NUMBERS)):
        return "leaf"
    if issubclass(kind, (list, tuple)):
        return "sequence"
    if issubclass(kind, dict):
        return "dictionary"
    return "users" if _is_users(kind) else "object"


def _parts(node: Any, seen: set[int]) -> Iterator[Hashable]:
    """Yield what the functions read that an argument holds."""
    role = _role(type(node))
    if role == "object" and callable(node):
        yield _value(node, seen, 0)
        return
    items: Any = ()
    if role == "sequence":
        items = node
    elif role == "dictionary":
        items = node.values()
    elif role != "leaf" and id(node) not in seen and hasattr(node, "__dict__"):
        seen.add(id(node))
        if role == "users":
            yield _class(type(node), seen, 0)
        items = vars(node).values()
    for item in items:
        if _role(type(item)) != "leaf":
            yield from _parts(item, seen)


def _value(value: Any, seen: set[int], depth: int) -> Hashable:
    """Return a key of what a function reads."""
    if isinstance(value, _NUMBERS):
        return type(value), repr(value)  # the text, since NaN does not equal itself
    if isinstance(value, np.ndarray) and value.dtype != object:
        content = sha256(np.ascontiguousarray(value).view(np.uint8).data).digest()
        return value.dtype.str, value.shape, content
    if id(value) in seen or depth > _DEEPEST:
        return None
    if isinstance(value, types.FunctionType):
        seen.add(id(value))
        return _function(value, seen, depth + 1)
    inner: Any = None
    if isinstance(value, functools.partial):
        inner = value.func, value.args, value.keywords
    elif isinstance(value, types.MethodType):
        inner = value.__func__, value.__self__
    elif isinstance(value, (staticmethod, classmethod)):
        inner = (value.__func__,)
    elif isinstance(value, property):
        inner = value.fget, value.fset
    elif isinstance(value, functools.cached_property):
        inner = (value.func,)
    elif isinstance(value, dict):
        inner = tuple(value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = tuple(value)
    elif isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):
        inner = (wrapped,)  # by jax.jit or jax.custom_jvp
    elif _is_users(type(value)) and hasattr(value, "__dict__"):
        inner = tuple(vars(value).items())
        inner = (*inner, _class(type(value), seen | {id(value)}, depth + 1))
    if inner is None:
        return _Identity(value)
    seen = seen | {id(value)}
    return type(value), tuple(_value(item, seen, depth + 1) for item in inner)


def _function(function: types.FunctionType, seen: set[int], depth: int) -> Hashable:
    code, found = function.__code__, []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    if _is_library(function.__globals__.get("__name__", "")):
        return code, tuple(_value(item, seen, depth) for item in found)
    variables = function.__globals__
    found += [variables[name] for name in _names(code) if name in variables]
    found += [function.__defaults__, function.__kwdefaults__]
    for module in [item for item in found if isinstance(item, types.ModuleType)]:
        if not _is_library(module.__name__):
            found += [vars(module)[name] for name in _names(code) if name in vars(module)]
    return code, tuple(_value(item, seen, depth) for item in found)


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of variables and attributes in code, with functions that it defines."""
    nested = [item for item in code.co_consts if isinstance(item, types.CodeType)]
    return tuple(dict.fromkeys((*code.co_names, *(n for item in nested for n in _names(item)))))


def _class(kind: type, seen: set[int], depth: int) -> Hashable:
    """Return a key of what the methods of a user's class read, and of its attributes."""
    found = []
    for base in kind.__mro__:
        if not _is_library(base.__module__):
            pairs = vars(base).items()
            found += [item for name, item in pairs if name == "__call__" or name[:2] != "__"]
    return tuple(_value(item, seen, depth) for item in found)


def _is_users(kind: type) -> bool:
    """Return whether a class is defined outside installed packages."""
    return issubclass(kind, types.SimpleNamespace) or not _is_library(kind.__module__)


@functools.cache
def _is_library(module: str) -> bool:
    """Return whether a module belongs to Python, nrjax or an installed package."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("builtins", "nrjax", "jax", "jaxlib"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and bool({"site-packages", "dist-packages"} & {*PurePath(file).parts})
