"""Programs are compiled again if what users' functions read has changed, and only then."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.captured import captured
from nrjax.simulation import program

TRUTH = 3.0
TABLE = np.array([3.0, 5.0])
SETTINGS = types.SimpleNamespace(truth=3.0)
KEY = jax.random.key(0)


@dataclasses.dataclass
class Settings:
    truth: float = 3.0

    def close(self, release):
        return -jnp.abs(release - self.truth - TABLE[0])


class Distance(nrjax.Utility):
    offset = 1.0

    def evaluate(self, hypothesis):
        return -jnp.abs(hypothesis - TRUTH - self.offset)


def distance(release):
    return -jnp.abs(release - TRUTH)


def nested(release):
    return jnp.min(jnp.stack([jax.lax.cond(True, lambda: distance(release), lambda: 0.0)]))


def by_array(release):
    return -jnp.abs(release - TABLE[0])


def by_settings(release):
    return -jnp.abs(release - SETTINGS.truth)


def by_default(release, truth=TABLE):
    return -jnp.abs(release - truth[0])


def made(values):
    return lambda release: -jnp.abs(release - values["truth"])


HELD = {"truth": 3.0}
OBJECT = Settings()


@pytest.fixture(autouse=True)
def restored_table():
    yield
    TABLE[0] = 3.0


SCORES = {
    "variable": distance,
    "helper": nested,
    "array": by_array,
    "attribute": by_settings,
    "default": by_default,
    "closure": made(HELD),
    "partial": functools.partial(lambda values, release: -jnp.abs(release - values[0]), TABLE),
    "jitted": jax.jit(distance),
    "method": OBJECT.close,
}


def change(monkeypatch, name):
    """Change what the score of this name reads."""
    if name in ("variable", "helper", "jitted"):
        monkeypatch.setitem(globals(), "TRUTH", 5.0)
    elif name in ("array", "default", "partial"):
        TABLE[0] = 5.0
    elif name == "closure":
        monkeypatch.setitem(HELD, "truth", 5.0)
    else:
        monkeypatch.setattr(OBJECT if name == "method" else SETTINGS, "truth", 5.0)


@pytest.mark.parametrize("name", SCORES)
def test_what_a_function_reads_is_part_of_its_key(monkeypatch, name):
    score = SCORES[name]
    before = captured(score)
    assert captured(score) == before
    assert hash(captured(score)) == hash(before)
    monkeypatch.setitem(globals(), "OTHER", 1.0)  # read by nothing
    assert captured(score) == before
    change(monkeypatch, name)
    assert captured(score) != before


def test_methods_and_attributes_of_classes_are_part_of_the_key(monkeypatch):
    parts = [Distance()]
    before = captured(parts)
    assert captured([Distance()]) == before
    with monkeypatch.context() as patch:
        patch.setattr(Distance, "offset", 2.0)
        assert captured(parts) != before
    monkeypatch.setitem(globals(), "TRUTH", 5.0)
    assert captured(parts) != before


def test_an_array_of_jax_counts_by_its_identity(monkeypatch):
    first = jnp.array([3.0, 5.0])
    monkeypatch.setitem(globals(), "TABLE", first)
    before = captured(by_array)
    assert captured(by_array) == before
    monkeypatch.setitem(globals(), "TABLE", first + 1)
    assert captured(by_array) != before


def test_references_in_circles_end():
    def first(release):
        return second(release)

    def second(release):
        return first(release) if release is None else distance(release)

    circle = [first]
    circle.append(circle)
    assert captured(functools.partial(first, circle)) is not None


def interaction(score, **arguments):
    return nrjax.laplace(0.0, 1.0).until(score, at_least=-0.5, **arguments)


@pytest.mark.parametrize("name", ["variable", "method"])
def test_no_door_uses_a_value_of_before(monkeypatch, name):
    assert nrjax.simulate(KEY, interaction(SCORES[name]), trials=64).stopped.any()
    before = nrjax.run_until(KEY, interaction(SCORES[name]))
    change(monkeypatch, name)
    made = interaction(SCORES[name])
    outcome, once = nrjax.simulate(KEY, made, trials=64), nrjax.run_until(KEY, made)
    expected = [float(SCORES[name](release)) for release in outcome.hypothesis]
    np.testing.assert_allclose(outcome.utility, expected, rtol=1e-6)
    assert float(once.utility) == pytest.approx(float(SCORES[name](once.hypothesis)), rel=1e-6)
    assert float(once.utility) != float(before.utility)
    path = nrjax.scan_path(KEY, made)
    assert float(path.utility[0]) == pytest.approx(float(SCORES[name](path.release[0])), rel=1e-6)


def test_equal_scores_share_a_program():
    nrjax.simulate(KEY, interaction(distance), trials=64)
    count = program._on_devices._cache_size()
    nrjax.simulate(jax.random.key(1), interaction(distance), trials=64)
    assert program._on_devices._cache_size() == count
