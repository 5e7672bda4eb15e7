"""Registering parameter classes as pytrees, in a way that keeps classes apart.

With `jax.tree_util.register_dataclass` (jaxlib 0.10) the tree structures of two different classes
compare equal where their leaves and static fields do, and only their hashes differ. A compiled
function may then be served to the other class: now and then a Laplace process would run as a
Brownian one, a boundary as another. Structures registered by functions compare their class.
"""

import dataclasses
from typing import Any, TypeVar

import jax

from nrjax._shown import representation

T = TypeVar("T")


def register_dataclass(cls: type[T]) -> type[T]:
    """Class decorator: make a frozen dataclass a pytree.

    Fields are leaves, or subtrees, unless they have `metadata={"static": True}`; static fields are
    part of the structure and must be hashable. The constructor runs when a person calls it, not
    when JAX puts a value together again; so it may check and derive. The engine brings Python
    numbers among the leaves to its float dtype: what is used as an index, or by Python's `if`,
    should be static.

    Raises:
        ValueError: `cls` is not a frozen dataclass.
    """
    if not (dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen):  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(f"cls = {cls!r}: must be a frozen dataclass")
    fields = dataclasses.fields(cls)
    data = tuple(field.name for field in fields if not field.metadata.get("static", False))
    static = tuple(field.name for field in fields if field.metadata.get("static", False))

    def flatten(value: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves = tuple(getattr(value, name) for name in data)
        return leaves, tuple(getattr(value, name) for name in static)

    def flatten_with_keys(value: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves, fixed = flatten(value)
        keys = map(jax.tree_util.GetAttrKey, data)
        return tuple(zip(keys, leaves, strict=True)), fixed

    def unflatten(fixed: tuple[Any, ...], leaves: Any) -> T:
        # Not by the constructor: it checks what a person gave, and JAX brings placeholders too.
        value = object.__new__(cls)
        for name, field in zip((*data, *static), (*leaves, *fixed), strict=True):
            object.__setattr__(value, name, field)
        return value

    if "__repr__" in vars(cls) and cls.__dataclass_params__.repr:  # pyright: ignore[reportAttributeAccessIssue]
        # The generated one would print whole arrays.
        cls.__repr__ = representation  # pyright: ignore[reportAttributeAccessIssue]
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
