"""The relation of neighbours of a sensitivity survives every door, for every class of parts."""

import copy
import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition as c
from nrjax._base.sensitivities import relation_of
from nrjax.guarantees import BoundaryRecipe, MinimaxBoundary
from nrjax.utilities import FunctionUtility

DELTA, TIMES = 1e-6, np.array([100.0, 30.0, 10.0])
GRID = nrjax.Grid(TIMES)
RELATION, OTHER = "add-remove, 2 rows", "replace"
L1, L2 = (nrjax.Sensitivity(1.0, norm, RELATION) for norm in ("l1", "l2"))


def score(release):
    return -jnp.max(jnp.abs(release - 3.0))


class Field(nrjax.Guarantee):
    """A custom guarantee with a field for the sensitivity, which it makes a plain number."""

    sensitivity: Any
    noise = "gaussian"
    delta = DELTA

    def __post_init__(self):
        object.__setattr__(self, "sensitivity", float(self.sensitivity))

    def epsilon(self, time):
        return 40 * self.sensitivity / jnp.sqrt(time)


class Wrapper(nrjax.Guarantee):
    """A custom guarantee whose sensitivity is that of another one."""

    inner: Any
    noise = "gaussian"
    delta = DELTA

    @property
    def sensitivity(self):
        return self.inner.sensitivity

    def epsilon(self, time):
        return self.inner.epsilon(time)


class Constant(nrjax.Guarantee):
    """A custom guarantee that states its relation by an attribute of the class."""

    noise, delta, relation = "gaussian", DELTA, RELATION

    def epsilon(self, time):
        return 40 / jnp.sqrt(time)


class Property(nrjax.LinearBoundary):
    """A custom boundary that states its relation by a property."""

    @property
    def relation(self):
        return RELATION


class Copy(BoundaryRecipe):
    """A custom recipe, whose guarantee has another relation if `made` is given."""

    sensitivity: Any = 1.0
    made: Any = nrjax.static(default=None)
    delta = DELTA
    noise = "gaussian"

    def on(self, schedule):
        size = self.sensitivity
        size = size if self.made is None else nrjax.Sensitivity(size, "l2", self.made)
        return nrjax.LinearBoundary.tight_at_epsilon(0.3, size, DELTA)

    def between(self, low, high, count):
        return self.on(None)


SHAPES: dict[str, Any] = {"sensitivity": L2, "delta": DELTA, "times": TIMES}
GUARANTEES = {
    "pure": nrjax.PureGuarantee(L1),
    "discrete": nrjax.DiscretePureGuarantee(L1),
    "linear": nrjax.LinearBoundary.tight_at_epsilon(0.3, L2, DELTA),
    "mixture": nrjax.MixtureBoundary.tight_at_time(30.0, L2, DELTA),
    "one-sided": nrjax.OneSidedMixtureBoundary.tight_at_epsilon(0.3, L2, DELTA),
    "renyi": nrjax.RenyiBoundary.tight_at_epsilon(0.3, L2, DELTA),
    "renyi-mixture": nrjax.RenyiMixture.design(TIMES, np.ones(3), L2, DELTA),
    "minimax": nrjax.GridBoundary.minimax(**SHAPES),
    "scaled": nrjax.GridBoundary.scaled(**SHAPES, shape=TIMES),
    "hockey-stick": nrjax.HockeyStickBoundary.design(TIMES, np.ones(3), L2, DELTA),
    "field": Field(L2),
    "wrapper": Wrapper(Field(L2)),
    "constant": Constant(),
    "property": Property.tight_at_epsilon(0.3, 1.0, DELTA),
    "stated": dataclasses.replace(Field(1.0), relation=RELATION),
}
OTHERS = {
    "recipe": MinimaxBoundary(L2, DELTA),
    "custom recipe": Copy(L2),
    "utility": FunctionUtility(score, (), L1),
    "sequence": nrjax.UtilitySequence(FunctionUtility(score, (jnp.ones(2),), L1)),
    "sequence's own": nrjax.UtilitySequence(FunctionUtility(score, (jnp.ones(2),)), L1),
    "rule": nrjax.AboveThreshold(0.0, L1, 0.5),
    "gaussian rule": nrjax.GaussianThreshold(0.0, L1, -2.0, 2.0, 3.8, 5.7, steps=3),
    "schedule": c.FilteredSchedule(
        GRID,
        *(lambda f: (f, f.init()))(c.ExPostFilter(9.0, relation=RELATION)),
        c.ExPost,
        guarantee=nrjax.PureGuarantee(1.0),
    ),
    "request": c.LaplaceReduction(L1, 3.0),
}
PARTS = {**GUARANTEES, **OTHERS}


def cast(part):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), part)


def plain(part):
    """Return a part with plain numbers, which keep their digits, as certified ones must."""
    return jax.tree.map(lambda leaf: np.asarray(leaf), part)


def in_batch(part):
    stacked = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * 2), part)
    return jax.tree.map(lambda leaf: leaf[1], stacked)


DOORS = {
    "construction": lambda part: part,
    "cast": cast,
    "jit": lambda part: jax.jit(lambda value: value)(cast(part)),
    "scan": lambda part: jax.lax.scan(lambda carry, _: (carry, None), cast(part), length=1)[0],
    "batch": in_batch,
    "replace": lambda part: dataclasses.replace(plain(part)),
    "deepcopy": lambda part: copy.deepcopy(cast(part)),
    "pickle": lambda part: pickle.loads(pickle.dumps(cast(part))),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", PARTS)
def test_the_relation_of_every_part_survives_every_door(name, door):
    assert relation_of(DOORS[door](PARTS[name])) == RELATION


def mechanism_of(guarantee):
    """Return a mechanism of plain numbers, so that only the relation that is kept is left."""
    process = {"laplace": nrjax.Laplace, "discrete laplace": nrjax.DiscreteLaplace}
    made = process.get(guarantee.noise, nrjax.Brownian)(())
    return nrjax.Mechanism(3.0, made, plain(guarantee))


def filtered_by(relation):
    """Return the first arguments of a filtered schedule."""
    budget = c.ExPostFilter(1e3, 0.5, relation=relation)
    return GRID, budget, budget.init()


def filtered(guarantee, relation):
    return c.FilteredSchedule(*filtered_by(relation), c.ExPost, guarantee=guarantee)


MAKERS = {
    "until": lambda g: mechanism_of(g).until(score, at_least=-2.0, levels=GRID).guarantee,
    "on": lambda g: mechanism_of(g).on(GRID).guarantee,
    "fixed": lambda g: nrjax.FixedRelease(mechanism_of(g), 0.5)._one_release[0].guarantee,
    "fixed-probabilistic": lambda g: (
        nrjax.FixedRelease(mechanism_of(g), 0.5, "probabilistic")._one_release[0].guarantee
    ),
    "schedule": lambda g: plain(filtered(plain(g), RELATION)).guarantee,
}
USES = {
    "filter": lambda part: c.ExPostFilter(1e3, 0.5, relation=OTHER).admits(
        c.ExPostFilter(1e3, 0.5, relation=OTHER).init(), c.ExPost.of(part, 30.0)
    ),
    "odometer": lambda part: c.ExPostOdometer(relation=OTHER).spend(
        c.ExPostOdometer(relation=OTHER).init(), c.ExPost.of(part, 30.0)
    ),
    "schedule": lambda part: filtered(part, OTHER),
    "mechanism": lambda part: mechanism_of(part).interaction(
        GRID, FunctionUtility(score), nrjax.PublicThreshold(-2.0), relation=OTHER
    ),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", GUARANTEES)
def test_what_is_made_from_a_guarantee_is_for_its_relation(name, maker):
    guarantee = GUARANTEES[name]
    is_release = maker.startswith("fixed")
    if is_release and (guarantee.sensitivity is None or guarantee.noise != "gaussian"):
        return  # a fixed release needs a sensitivity, and that of Laplace noise is the guarantee
    made = MAKERS[maker](guarantee)
    assert relation_of(made) == RELATION
    if is_release:
        return
    for use in USES.values():
        with pytest.raises(ValueError, match=r"relation|notion of the request"):
            use(made)


def test_a_relation_is_neither_dropped_nor_invented():
    added, replaced = (nrjax.Sensitivity(1.0, "l2", name) for name in ("add-remove", OTHER))
    line = nrjax.LinearBoundary.tight_at_epsilon(0.3, 1.0, DELTA)
    interaction = nrjax.brownian(3.0, added, DELTA).until(score, at_least=-2.0, levels=GRID)
    for boundary in (line, Copy(), MinimaxBoundary(1.0, DELTA), Field(1.0), Wrapper(Field(1.0))):
        made = nrjax.brownian(3.0, replaced, DELTA, boundary=boundary)
        assert made.relation == OTHER
        assert made.interaction(GRID, interaction.utility, interaction.rule).relation == OTHER
        assert type(made.guarantee) is type(boundary)
    stated = nrjax.brownian(3.0, 1.0, DELTA, boundary=Constant())
    fixed = nrjax.FixedRelease.at_time(mechanism_of(GUARANTEES["stated"]), 30.0)
    assert fixed.until(score, at_least=-2.0).relation == RELATION
    rule = nrjax.AboveThreshold(-2.0, added, 0.5)
    for refused in (
        lambda: dataclasses.replace(interaction, relation=OTHER),
        lambda: dataclasses.replace(interaction, guarantee=plain(GUARANTEES["linear"])),
        lambda: nrjax.brownian(3.0, 1.0, DELTA, boundary=Copy(made=RELATION)).on(GRID),
        lambda: nrjax.brownian(3.0, added, DELTA, boundary=Copy(made=OTHER)).on(GRID),
        lambda: nrjax.brownian(3.0, added, DELTA, boundary=stated.guarantee),
        lambda: dataclasses.replace(cast(line), relation="swap"),
        lambda: dataclasses.replace(plain(GUARANTEES["linear"]), sensitivity=added),
        lambda: c.FilteredSchedule(*filtered_by(OTHER), c.BrownianReduction, 1.0, rule=rule),
        lambda: c.FilteredSchedule(
            OTHERS["schedule"], *filtered_by(OTHER)[1:], c.ExPost, guarantee=line
        ),
    ):
        with pytest.raises(ValueError, match="relation"):
            refused()


class Both(nrjax.Guarantee):
    """The cheaper of two guarantees, which are in a tuple."""

    noise = "laplace"
    parts: tuple

    def epsilon(self, time):
        return jnp.minimum(*(part.epsilon(time) for part in self.parts))

    def time(self, epsilon):
        return self.parts[0].time(epsilon)


class Stated(nrjax.PureGuarantee):
    """A guarantee whose class states a relation."""

    relation = "add-remove"


def test_relations_in_containers_and_of_classes_are_compared_too():
    added, replaced = (nrjax.Sensitivity(1.0, "l1", name) for name in ("add-remove", "replace"))
    parts = nrjax.PureGuarantee(added), nrjax.PureGuarantee(replaced)
    assert relation_of(Both((parts[0],) * 2)) == "add-remove"
    assert Stated(added).relation == Stated(1.0).relation == "add-remove"
    mechanism = nrjax.Mechanism(3.0, nrjax.Laplace(()), Both((parts[0],) * 2))
    assert mechanism.relation == "add-remove"
    with pytest.raises(ValueError, match="relation"):
        Both(parts)
    with pytest.raises(ValueError, match="relation"):
        relation_of(Stated(replaced))
    with pytest.raises(ValueError, match="relation must be"):
        nrjax.Sensitivity(1.0, "l1", "replace, 2\u0663 rows")
