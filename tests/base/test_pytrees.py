"""Registered classes are pytrees whose structures never pass for another class's."""

import dataclasses
import itertools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from tests.problems import Distance, scalar


def one_field_class(number):
    """Return a class with one leaf and a method that returns `number`."""

    class Numbered(nrjax.Pytree):
        leaf: float

        def number(self):
            return number + 0 * jnp.asarray(self.leaf)

    return Numbered


def test_no_class_gets_the_program_of_another():
    call = jax.jit(lambda value: value.number())
    values = [one_field_class(number)(1.0) for number in range(12)]
    assert [int(call(value)) for value in values] == list(range(12))
    for one, other in itertools.combinations(map(jax.tree.structure, values), 2):
        assert one != other


def test_the_engine_keeps_classes_registered_with_jax_apart():
    class Signed(Distance):
        sign: Any = None

        def evaluate(self, hypothesis):
            return self.sign(super().evaluate(hypothesis))

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Plus:
        def __call__(self, number):
            return number

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Minus:
        def __call__(self, number):
            return -number

    utilities = Signed(3.0, sign=Plus()), Signed(3.0, sign=Minus())
    built = [nrjax.Interaction(**scalar(utility=one)) for one in utilities]
    assert jax.tree.structure(built[0]) != jax.tree.structure(built[1])


def test_leaves_statics_and_paths():
    class Mixed(nrjax.Pytree):
        fixed: int = nrjax.static()
        leaf: float
        subtree: dict

    value = Mixed(7, 1.0, {"a": 2.0})
    assert jax.tree.leaves(value) == [1.0, 2.0]
    assert jax.tree.map(lambda leaf: 2 * leaf, value) == Mixed(7, 2.0, {"a": 4.0})
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(value)]
    assert paths == [".leaf", ".subtree['a']"]
    assert jax.tree.structure(value) != jax.tree.structure(Mixed(8, 1.0, {"a": 2.0}))


class Scale(nrjax.Pytree):
    factor: Any


class Scaled(nrjax.Pytree):
    number: Any
    by: Scale = nrjax.static()


def test_equal_parts_are_equal():
    """JAX compares static fields to find a compiled program."""
    one, same, other = (nrjax.Grid(times) for times in ([3.0, 2.0], [3.0, 2.0], [3.0, 1.0]))
    assert one == same
    assert one in [other, same]
    assert one not in [other, nrjax.PublicThreshold(3.0), None]
    assert len({one, same}) == 1
    trial, again = (nrjax.Interaction(**scalar()) for _ in range(2))
    assert {trial: 1}[again] == 1
    assert trial != nrjax.Interaction(**scalar(threshold=-1.0))
    equal = jax.jit(
        lambda times: jnp.asarray([nrjax.Grid(times) == nrjax.Grid(times), one == times])
    )
    np.testing.assert_array_equal(equal(jnp.asarray([3.0, 2.0])), [True, False])
    traced = []
    times = jax.jit(lambda scaled: traced.append(1) or scaled.number * scaled.by.factor)
    for factor, result in (([1.0, 2.0], 6.0), ([1.0, 2.0], 6.0), ([1.0, 3.0], 9.0)):
        assert times(Scaled(3.0, Scale(np.array(factor))))[1] == result
    assert len(traced) == 2


def test_a_class_attribute_of_the_base_is_no_default():
    """It is used by classes without the field. A class with the field needs a value."""

    class Bare(nrjax.Utility):
        def evaluate(self, hypothesis):
            return hypothesis

    class Stated(Bare):
        sensitivity: float

    assert Bare().sensitivity is None
    assert Stated(2.0).sensitivity == 2
    with pytest.raises(TypeError, match="sensitivity"):
        Stated()
    with pytest.raises(TypeError, match="abstract"):
        nrjax.Utility()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Stated(2.0).sensitivity = 1.0


UNQUOTED = """
class Node(nrjax.Pytree):
    leaf: float
    others: Node | Later | None = None

class Later(Node):
    pass
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated at once")
def test_a_class_may_name_itself_and_later_ones_without_quotes():
    exec(UNQUOTED, names := {"nrjax": nrjax})
    assert jax.tree.leaves(names["Node"](1.0, names["Later"](2.0))) == [1.0, 2.0]
    with pytest.raises(TypeError, match="leaf"):
        names["Later"]()
