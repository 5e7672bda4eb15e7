"""Parameter classes: frozen dataclasses that are pytrees, each class kept apart from the others.

With `jax.tree_util.register_dataclass` (jaxlib 0.10) the structures of two classes compare equal
where their leaves and static fields do, only their hashes differ: a compiled function may be served
to the other class, a Laplace process run as a Brownian one. Those registered by functions compare
their class.
"""

import dataclasses
import functools
import inspect
import sys
from typing import Any, dataclass_transform

import jax
import numpy as np

from nrjax._format import representation

if sys.version_info >= (3, 14):  # which evaluates annotations late: some names may not exist yet
    import annotationlib

    _LATE = {"format": annotationlib.Format.FORWARDREF}
else:
    _LATE = {}


def static(**options: Any) -> Any:
    """A dataclass field, with these options, that is part of the structure: hashable."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
class Pytree:
    """Base of parameter classes: what derives from it is a frozen dataclass and a pytree.

    Fields are leaves, or subtrees, unless they are `nrjax.static()`. The constructor may check and
    derive: JAX does not run it. The engine brings Python numbers among the leaves to its float
    dtype: what is used as an index, or by Python's `if`, should be static.

        class Distance(nrjax.Utility):
            target: Array
            order: int = nrjax.static(default=2)
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__()
        inherited = getattr(cls, "__dataclass_fields__", {})
        for name in inspect.get_annotations(cls, **_LATE):
            # A base's own value stands for those that lack the field; it is no default of it.
            if name not in vars(cls) and name not in inherited and hasattr(cls, name):
                setattr(cls, name, dataclasses.field())
        dataclasses.dataclass(frozen=True, repr=False, eq=False, **options)(cls)
        cls.__setattr__ = _refuse  # says more than the one that dataclasses make
        _register(cls)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same class and static fields, and equal leaves."""
        (leaves, structure), (others, same) = map(jax.tree.flatten, (self, other))
        return structure == same and all(map(_equal, leaves, others))

    def __hash__(self) -> int:
        return hash(jax.tree.structure(self))

    __repr__ = representation


def _refuse(self: Any, name: str, value: Any) -> None:
    kind = type(self).__name__
    raise dataclasses.FrozenInstanceError(
        f"cannot assign to field {name!r}: {kind} is a frozen dataclass. Leave out __init__ and "
        f"derive fields in __post_init__, by object.__setattr__(self, {name!r}, value); for a "
        "changed copy use dataclasses.replace"
    )


def _equal(one: Any, other: Any) -> bool:
    return one is other or np.array_equal(one, other)  # False for a traced leaf and another


def _register(cls: type) -> None:
    def flatten(value: Any) -> Any:
        return tuple([tuple([getattr(value, name) for name in names]) for names in _names(cls)])

    def flatten_with_keys(value: Any) -> Any:
        leaves, rest = flatten(value)
        keys = map(jax.tree_util.GetAttrKey, _names(cls)[0])
        return tuple(zip(keys, leaves, strict=True)), rest

    def unflatten(rest: tuple[Any, ...], leaves: Any) -> Any:
        # Not by the constructor: it checks what a person gave, and JAX brings placeholders too.
        value = object.__new__(cls)
        data, fixed = _names(cls)
        for name, field in zip((*data, *fixed), (*leaves, *rest), strict=True):
            object.__setattr__(value, name, field)
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


@functools.cache
def _names(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Leaves and static fields, looked up late: a class sent to a process gets fields after it."""
    data, fixed = [], []
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        (fixed if field.metadata.get("static", False) else data).append(field.name)
    return tuple(data), tuple(fixed)
