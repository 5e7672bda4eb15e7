"""Registered classes are pytrees whose structures never pass for another class's."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.interaction import build_interaction
from tests.problems import Distance, scalar


def one_field_class(number, register):
    """A class with one leaf, whose method gives its own number."""

    @register
    @dataclasses.dataclass(frozen=True)
    class Numbered:
        leaf: float

        def number(self):
            return number + 0 * jnp.asarray(self.leaf)

    return Numbered


def wrong_answers(register):
    """How many of many classes get another one's compiled program."""
    call = jax.jit(lambda value: value.number())
    kinds = [one_field_class(number, register) for number in range(60)]
    return sum(int(call(kind(1.0))) != number for number, kind in enumerate(kinds))


def test_no_class_is_served_the_program_of_another():
    assert wrong_answers(nrjax.register_dataclass) == 0


def test_structures_of_all_parts_differ():
    parts = [
        nrjax.Brownian((3,)),
        nrjax.Laplace((3,)),
        nrjax.LaplaceJumps((3,), 1.0, 2.0),
        nrjax.Skellam((3,), 1.0, 2.0),
        nrjax.LinearBoundary.tight_at_epsilon(0.5, 1.0, 1e-6),
        nrjax.MixtureBoundary.tight_at_epsilon(0.5, 1.0, 1e-6),
        nrjax.OneSidedMixtureBoundary.tight_at_epsilon(0.5, 1.0, 1e-6),
        nrjax.PureGuarantee(1.0),
        nrjax.PublicThreshold(1.0),
        nrjax.Grid(np.ones(3)),
        Distance(1.0, 2.0),
    ]
    for one, other in itertools.combinations(map(jax.tree.structure, parts), 2):
        assert one != other


def test_classes_registered_with_jax_itself_are_kept_apart_by_the_engine():
    def utility(sign):
        @jax.tree_util.register_dataclass
        @dataclasses.dataclass(frozen=True)
        class Signed(Distance):
            def evaluate(self, hypothesis):
                return sign * super().evaluate(hypothesis)

        return Signed(3.0)

    built = [build_interaction(**scalar(utility=utility(sign))) for sign in (1, -1)]
    assert jax.tree.structure(built[0]) != jax.tree.structure(built[1])


def test_leaves_statics_and_paths():
    @nrjax.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Mixed:
        fixed: int = dataclasses.field(metadata={"static": True})
        leaf: float
        subtree: dict

    value = Mixed(7, 1.0, {"a": 2.0})
    assert jax.tree.leaves(value) == [1.0, 2.0]
    assert jax.tree.map(lambda leaf: 2 * leaf, value) == Mixed(7, 2.0, {"a": 4.0})
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(value)]
    assert paths == [".leaf", ".subtree['a']"]
    assert jax.tree.structure(value) != jax.tree.structure(Mixed(8, 1.0, {"a": 2.0}))


def test_only_frozen_dataclasses_are_registered():
    @dataclasses.dataclass
    class Mutable:
        leaf: float

    for cls in (Mutable, int):
        with pytest.raises(ValueError, match="must be a frozen dataclass"):
            nrjax.register_dataclass(cls)
