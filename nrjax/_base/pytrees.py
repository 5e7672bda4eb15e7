"""Frozen dataclasses that are pytrees, with the class as part of the tree structure.

With `jax.tree_util.register_dataclass` (jaxlib 0.10) the structures of two classes compare equal if
their fields do, and only their hashes differ. A function compiled for a Laplace process could then
be used for a Brownian one. Classes registered by functions, as here, compare by class.
"""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Collection
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax
import numpy as np

from nrjax._base.fields import explain_fields
from nrjax._base.format import representation
from nrjax._base.sensitivities import Sensitivity, shared_relation, split_relation

T = TypeVar("T")

if sys.version_info >= (3, 14):  # annotations are lazy: some names may not exist yet
    import annotationlib

    _LATE = {"format": annotationlib.Format.FORWARDREF}
else:
    _LATE = {}


def static(**options: Any) -> Any:
    """Return a dataclass field that is part of the tree structure and not a leaf.

    The field's value must be hashable. Use `static` for functions, text, and numbers that serve as
    an index or in Python's `if`.

        >>> class Power(nrjax.Pytree):
        ...     base: float
        ...     exponent: int = nrjax.static(default=2)
        >>> jax.tree.map(lambda leaf: leaf + 1, Power(3.0))
        Power(base=4.0, exponent=2)

    Args:
        options: arguments of `dataclasses.field`, such as `default`.
    """
    return dataclasses.field(metadata={"static": True}, **options)


def _equal(self: Any, other: object) -> bool:
    """Return whether two objects have the same class, equal static fields and equal leaves.

    NaN equals NaN. A traced leaf equals only itself.
    """
    (leaves, structure), (others, same) = map(jax.tree.flatten, (self, other))
    return structure == same and all(map(_same_leaf, leaves, others))


def _hash(self: Any) -> int:
    """Return a hash of the class and the static fields."""
    return hash(jax.tree.structure(self))


def record(cls: type[T]) -> type[T]:
    """Make a class of named tuples compare and hash by content, and print briefly.

    The methods of tuples raise an error if a field is an array. `help` describes the fields.
    """
    methods: dict[str, Any] = {"__eq__": _equal, "__ne__": object.__ne__, "__hash__": _hash}
    if cls.__repr__.__module__ == "collections":
        methods["__repr__"] = representation
    for name, method in methods.items():
        setattr(cls, name, method)
    shown = cls.__new__.__annotations__  # `help` would show ForwardRef('Array')
    shown.update({name: getattr(kind, "__forward_arg__", kind) for name, kind in shown.items()})
    return explain_fields(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
class Pytree:
    """A base class that makes every subclass a frozen dataclass and a pytree.

    Fields are leaves, or subtrees, unless they are `nrjax.static()`. Do not define `__init__`:
    check and derive fields in `__post_init__`, which JAX does not run when it rebuilds an instance.
    An `Interaction` turns Python numbers among the leaves into floats, so an index must be static.

        >>> class Distance(nrjax.Utility):
        ...     target: jax.Array
        ...     order: int = nrjax.static(default=2)
        ...     def evaluate(self, hypothesis):
        ...         return -jnp.linalg.norm(hypothesis - self.target, self.order)
        >>> len(jax.tree.leaves(Distance(jnp.zeros(3))))
        1
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__()
        inherited = getattr(cls, "__dataclass_fields__", {})
        for name in inspect.get_annotations(cls, **_LATE):
            # A class attribute of a base is only a fallback: it must not become the default.
            if name not in vars(cls) and name not in inherited and hasattr(cls, name):
                setattr(cls, name, dataclasses.field())
        _keep_relation(cls, inherited)
        dataclasses.dataclass(frozen=True, repr=False, eq=False, **options)(cls)
        cls.__setattr__ = _refuse  # with a more helpful message than that of dataclasses
        _register(cls)

    __eq__, __hash__, __repr__ = _equal, _hash, representation


def _keep_relation(cls: Any, inherited: Collection[str]) -> None:
    """Give the subclasses of a class with `relation = None` a static field of that name.

    The field takes the relation that a `Sensitivity` or a part among the other fields states. It
    stays if a cast or a tree map turns the `Sensitivity` into a plain number. A class that states
    its relation by an attribute or a property gets no field.
    """
    own, annotations = vars(cls), inspect.get_annotations(cls, **_LATE)
    is_field = "relation" in inherited or "relation" in annotations
    if own.get("relation") is not None:
        if "relation" not in annotations and is_field:
            cls.__annotations__ = {**annotations, "relation": ClassVar[Any]}
        elif "relation" in inherited and isinstance(own["relation"], dataclasses.Field):
            own["relation"].kw_only = True  # as the inherited field, whose place it takes
    elif not is_field and getattr(cls, "relation", "") is None and Pytree not in cls.__bases__:
        cls.__annotations__ = {**annotations, "relation": Any}
        cls.relation = static(default=None, kw_only=True, repr=False)
        cls.__post_init__ = _stating_relation(getattr(cls, "__post_init__", None))
        return
    if is_field and "__post_init__" in own:
        cls.__post_init__ = _stating_relation(own["__post_init__"])


def _stating(part: Any) -> dict[str, Any]:
    """Return the sensitivities and parts among the fields of a part, also those in containers."""
    kinds = Sensitivity, Pytree
    return {
        f"{name}{jax.tree_util.keystr(path)}": leaf
        for name, value in vars(part).items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(
            value, is_leaf=lambda node: isinstance(node, kinds)
        )
        if isinstance(leaf, kinds)
    }


def _stating_relation(derive: Callable[..., None] | None) -> Callable[..., None]:
    """Return a `__post_init__` that also takes the relation from the other fields."""

    def __post_init__(self: Any, *initial: Any) -> None:
        is_field = "relation" in field_names(type(self))[1]
        if is_field and self.relation is not None:
            split_relation(self.relation)
        given = _stating(self)  # `derive` may turn a sensitivity into a plain number
        if derive is not None:
            derive(self, *initial)
        if is_field:
            parts = {type(self).__name__: self, **given}
            object.__setattr__(self, "relation", shared_relation(**parts))

    return __post_init__


def _refuse(self: Any, name: str, value: Any) -> None:
    kind = type(self).__name__
    raise dataclasses.FrozenInstanceError(
        f"cannot assign to field {name!r}: {kind} is a frozen dataclass. Leave out __init__ and "
        f"derive fields in __post_init__, by object.__setattr__(self, {name!r}, value); for a "
        "changed copy use dataclasses.replace"
    )


def _same_leaf(leaf: Any, other: Any) -> bool:
    try:
        return leaf is other or np.array_equal(leaf, other, equal_nan=True)
    except TypeError:  # no numbers
        return np.array_equal(leaf, other)


def _register(cls: type) -> None:
    def flatten(value: Any) -> Any:
        data, fixed = field_names(cls)
        leaves = tuple([getattr(value, name) for name in data])
        return leaves, tuple([getattr(value, name) for name in fixed])

    def flatten_with_keys(value: Any) -> Any:
        leaves, rest = flatten(value)
        keys = map(jax.tree_util.GetAttrKey, field_names(cls)[0])
        return tuple(zip(keys, leaves, strict=True)), rest

    def unflatten(rest: tuple[Any, ...], leaves: Any) -> Any:
        # The constructor is bypassed: it checks numbers, and JAX also passes placeholders.
        value = object.__new__(cls)
        data, fixed = field_names(cls)
        for name, field in zip((*data, *fixed), (*leaves, *rest), strict=True):
            object.__setattr__(value, name, field)
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


@functools.cache
def field_names(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the leaves and of the static fields of a class.

    The names are read at the first use, since cloudpickle adds fields after it makes a class.
    """
    data, fixed = [], []
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        (fixed if field.metadata.get("static", False) else data).append(field.name)
    return tuple(data), tuple(fixed)
