"""The fingerprints by which a run is recognised, and the settings of a resumed study."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.cli import loading
from nrjax.cli.loading import from_json
from nrjax.simulation import montecarlo
from nrjax.study import dask_worker, provenance
from nrjax.study.options import RunOptions, to_json
from tests.study import cheap

DATA, SCALE, WIDTH, COUNT = np.array([1.0, 2.0, 3.0]), 2.0, 1.0, ()


@jax.jit
def inner(x):
    return -jnp.abs(x - 3.0) * SCALE + 0 * jnp.sum(jnp.asarray(DATA, x.dtype))


@jax.jit
def other_name(x):
    return -jnp.abs(x - 3.0) * SCALE + 0 * jnp.sum(jnp.asarray(DATA, x.dtype))


class Inner(nrjax.Utility):
    """A utility with a compiled helper, which refers to numbers of this module."""

    def evaluate(self, hypothesis):
        return inner(hypothesis)


class OtherName(nrjax.Utility):
    def evaluate(self, hypothesis):
        return other_name(hypothesis)


class Bounded(Inner):
    def bounds(self, hypothesis, *, rounding=True):
        exact = inner(hypothesis)
        return exact - WIDTH, exact + WIDTH


@jax.custom_batching.custom_vmap
def ruled(x):
    return -jnp.abs(x - 3.0)


@ruled.def_vmap
def _rule(size, batched, x):
    return SCALE * -jnp.abs(x - 3.0), batched[0]


class Ruled(nrjax.Utility):
    """A utility with a rule for batches, which refers to a number of this module."""

    def evaluate(self, hypothesis):
        return jnp.where(hypothesis > 0, ruled(hypothesis), 0.0)


class Calling(nrjax.Utility):
    def evaluate(self, hypothesis):
        return jax.pure_callback(lambda x: -abs(x), jax.typeof(hypothesis), hypothesis)


class Printing(nrjax.Utility):
    def evaluate(self, hypothesis):
        jax.debug.print("{}", hypothesis)
        return -jnp.abs(hypothesis - 3.0)


def study(utility, **options):
    case = nrjax.Case(trial=cheap.interaction(utility=utility), **options)
    return nrjax.Study("s", {"a": case}, reporting=cheap.Quiet())


def passes_of(utility, **options):
    return study(utility, **options)._passes(RunOptions(trials=8))


def fingerprint(utility, name="outcome", **options):
    return provenance.fingerprints(passes_of(utility, **options))["a"][name]


@pytest.mark.parametrize(
    ("name", "value"), [("DATA", np.array([1.0, 2.0, 4.0])), ("SCALE", 3.0), ("WIDTH", 0.5)]
)
def test_numbers_that_compiled_helpers_and_bounds_refer_to_count(name, value, monkeypatch):
    before = fingerprint(Bounded())
    assert fingerprint(Bounded()) == before
    monkeypatch.setitem(globals(), name, value)
    inner.clear_cache()  # as in another process
    assert fingerprint(Bounded()) != before


def test_rules_of_batching_count(monkeypatch):
    before = fingerprint(Ruled())
    assert fingerprint(Ruled()) == before
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert fingerprint(Ruled()) != before


def test_values_dtypes_shapes_and_weak_types_of_leaves_count():
    starts = (1.0, 2.0, np.float32(1.0), np.float16(1.0), np.ones(1, np.float32), np.int32(1))
    cases = {f"{number}": cheap.Walk(start) for number, start in enumerate(starts)}
    passes = cheap.study(cases)._passes(RunOptions())
    prints = [one["outcome"] for one in provenance.fingerprints(passes).values()]
    assert len(set(prints)) == len(starts)
    assert prints[0][: provenance.PROGRAM] == prints[1][: provenance.PROGRAM]


OTHER_PROCESS = """
from tests.study import test_provenance as tests
utilities = tests.Bounded(), tests.Ruled(), tests.Printing()
print(*map(tests.fingerprint, utilities))
"""


def test_fingerprints_are_the_same_in_another_process():
    """With another seed of Python's hashes, by which sets and dicts might be ordered."""
    there = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONHASHSEED": str(int(os.environ.get("PYTHONHASHSEED") == "0"))},
    )
    assert there.stdout.split() == [fingerprint(one) for one in (Bounded(), Ruled(), Printing())]


def test_names_do_not_count_and_batches_do():
    assert fingerprint(Inner()) == fingerprint(OtherName())
    usual = fingerprint(Inner(), batching=nrjax.Batching(tile=8, lanes=16))
    for same in (nrjax.Batching(tile=8, lanes=32), nrjax.Batching(tile=8, lanes=16, inner_steps=2)):
        assert fingerprint(Inner(), batching=same) == usual
    for other in (nrjax.Batching(tile=16, lanes=16), nrjax.Batching(tile=1, lanes=1)):
        assert fingerprint(Inner(), batching=other) != usual


class Typed(nrjax.Pytree):
    """A custom trial that depends on the type of a static number."""

    power: Any = nrjax.static()

    def run(self, key):
        walked = cheap.Walk(np.float32(0)).run(key)
        return walked._replace(end=walked.end * (2.0 if isinstance(self.power, float) else 3.0))


@pytest.mark.parametrize("powers", [(1, 1.0), (1.0, 1), (1.0, True)])
def test_equal_numbers_of_different_types_are_different_programs(powers):
    """Within one study, although a dict takes them for the same key."""

    def prints(**cases):
        return provenance.fingerprints(cheap.study(cases)._passes(RunOptions()))

    first, second = map(Typed, powers)
    both = prints(a=first, b=second)
    assert both["a"] != both["b"]
    assert both == prints(a=first) | prints(b=second)


def test_the_parts_of_a_fingerprint_show_what_differs():
    trials = {"a": cheap.Walk(np.float32(1.0)), "b": cheap.Walk(2.0), "c": Typed(1)}
    found = {case: one["outcome"] for case, one in cheap.study(trials).fingerprints().items()}
    passes = cheap.study(trials)._passes(RunOptions(trials=8, keep="summary"))
    stored = provenance.fingerprints(passes)
    assert {case: {"outcome": one.value} for case, one in found.items()} == stored
    first, other, typed = found.values()
    (leaf,), (weak,) = first.leaves, other.leaves
    assert (leaf.path, leaf.shape, leaf.dtype) == (".start", (), "float32")
    assert weak.dtype.startswith("weak ")
    assert weak.digest != leaf.digest
    assert first.value == first.program + first.data != other.value
    assert (typed.leaves, first.constants) == ((), ())
    assert first.text.startswith("module @")
    assert first.text != typed.text
    # By hand: the hashes of the text with the batch, and of the hash of each leaf.
    batch = f"{first.tile} {first.lanes == 1}".encode()
    for text, half in ((first.text.encode() + batch, first.program), (b"", typed.data)):
        assert hashlib.sha256(text).hexdigest()[: provenance.PROGRAM] == half
    shown = str(first).splitlines()
    assert shown[0] == f"program {first.program}  tile {first.tile}, lanes {first.lanes}"
    assert shown[1:] == [f"data    {first.data}", f"    {leaf.digest}  float32[]  .start"]


def test_arrays_that_the_text_leaves_out_are_parts():
    utility = Inner()
    with mock.patch.object(provenance, "_lowered", return_value=("text", [DATA, DATA + 1])):
        parts = study(utility).fingerprints()["a"]["outcome"]
    assert [leaf.path for leaf in parts.constants] == ["constant 0", "constant 1"]
    assert parts.constants[0].digest != parts.constants[1].digest
    assert "constant 1" in str(parts)


def test_flags_of_xla_count_except_for_devices_and_dumps(monkeypatch):
    flags = "--xla_b --xla_dump_to=x --xla_a --xla_force_host_platform_device_count=4"
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert provenance.environment()["xla_flags"] == "--xla_a --xla_b"


def test_the_resolution_of_a_curve_counts():
    trial, kept = cheap.interaction(utility=Bounded()), {"utility": nrjax.Quantity()}
    curves = [nrjax.Curve(trial, kept, resolution=one) for one in (None, 0.2, 0.3, 0.3)]
    prints = [fingerprint(Bounded(), "curve", curves={"curve": curve}) for curve in curves]
    assert len(set(prints)) == 3
    assert prints[2] == prints[3]


def test_a_call_back_into_python_is_refused():
    with pytest.raises(ValueError, match=r"the study calls jax\.pure_callback, .* Write it in JAX"):
        fingerprint(Calling())


@pytest.mark.long
def test_the_manifest_describes_what_was_run(tmp_path, monkeypatch):
    """In one process, after an edit of a number that a class refers to."""
    first = study(OtherName()).run(tmp_path / "first", trials=16, progress=False)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    other_name.clear_cache()
    second = study(OtherName()).run(tmp_path / "second", trials=16, progress=False)
    one, two = (results["a"].isel(trial=0) for results in (first, second))
    assert one.attrs == two.attrs
    prints = [results.store.settings["fingerprints"] for results in (first, second)]
    assert prints[0] != prints[1]
    still = first["a"].step.values == second["a"].step.values
    assert still.any()
    ratio = second["a"].utility.values[still] / first["a"].utility.values[still]
    np.testing.assert_allclose(ratio, 2.5, rtol=1e-5)


class Plain(nrjax.Utility):
    """A utility that refers to a number of this module, without a compiled helper."""

    def evaluate(self, hypothesis):
        return SCALE * hypothesis

    def bounds(self, hypothesis, *, rounding=True):
        return SCALE * hypothesis - 1e-3, SCALE * hypothesis + 1e-3


@pytest.mark.long
def test_traces_from_before_and_after_an_edit_are_not_mixed(tmp_path, monkeypatch):
    """A study, paths, and then the first simulation since the edit of a class."""
    trial, key = cheap.interaction(0.5, utility=Plain()), jax.random.key(0)
    study(Plain()).run(tmp_path / "first", trials=16, progress=False)
    montecarlo.paths(trial, 8).run_all(key, 8)
    monkeypatch.setitem(globals(), "SCALE", -2.0)
    outcome = nrjax.simulate(key, trial, trials=64)
    assert set(outcome.status.tolist()) == {nrjax.Status.STOPPED, nrjax.Status.EXHAUSTED}
    assert np.array_equal(outcome.utility >= 0.5, outcome.stopped)
    np.testing.assert_allclose(outcome.utility, -2.0 * outcome.hypothesis, rtol=1e-6)


class Copies(nrjax.Utility):
    def hypothesis(self, release):
        return jnp.full(COUNT, release)

    def evaluate(self, hypothesis):
        return jnp.sum(hypothesis)


def test_shapes_follow_an_edit(monkeypatch):
    for count in ((), (3,)):
        monkeypatch.setitem(globals(), "COUNT", count)
        passes = passes_of(Copies(), quantities={"copies": nrjax.Quantity(_hypothesis)})["a"]
        assert passes["outcome"].layout.variables["copies"].shape == count


def _hypothesis(outcome):
    return outcome.hypothesis


@dataclasses.dataclass(frozen=True)
class Own:
    shares: list[float] = dataclasses.field(default_factory=lambda: [0.1, 0.2])
    pair: tuple[str, float] = ("a", 0.5)
    several: tuple[int, ...] = (1, 2, 3)
    either: float | str = "big"
    named: dict[str, float] = dataclasses.field(default_factory=lambda: {"a": 1.0})
    file: Path | None = None


def test_settings_of_many_types_come_back():
    for own in (Own(), Own([], ("b", 1.0), (), 0.25, {}, Path("x"))):
        assert from_json(Own, json.loads(json.dumps(to_json(own)))) == own
    with pytest.raises(ValueError, match=r"pair must be a list of 2"):
        from_json(Own, to_json(Own()) | {"pair": ["a"]})
    with pytest.raises(ValueError, match=r"either must be of type"):
        from_json(Own, to_json(Own()) | {"either": [1]})
    options = RunOptions(trials=np.int64(8), seed=np.uint8(3), until_se=np.float32(0.5))
    stored = json.loads(json.dumps(to_json(options)))
    assert RunOptions.from_json(stored | {"levels": 3}) == options


def test_a_setting_that_cannot_be_stored_is_refused_at_the_start():
    source = loading.Source("s", Odd, lambda own: study(Inner()), None)
    with pytest.raises((ValueError, TypeError), match=r"settings must be of|not JSON serializable"):
        source.study(Odd())


@dataclasses.dataclass(frozen=True)
class Odd:
    numbers: frozenset[int] = frozenset((1,))


def test_modules_next_to_the_file_of_a_study_are_found(tmp_path):
    (tmp_path / "next_to_the_study.py").write_text("THRESHOLD = -0.5\n")
    program = """
        from tests.study import cheap

        def study():
            import next_to_the_study

            return cheap.study({"a": cheap.interaction(next_to_the_study.THRESHOLD)})
    """
    (tmp_path / "my_own.py").write_text(textwrap.dedent(program))
    study = loading.find(str(tmp_path / "my_own.py")).study(None)
    assert list(study.cases) == ["a"]


def test_a_study_that_cannot_be_pickled_is_refused():
    pytest.importorskip("cloudpickle")
    import threading

    passes = passes_of(Inner())
    vars(passes["a"]["outcome"])["lock"] = threading.Lock()
    with pytest.raises(ValueError, match="study must be of parts that can be pickled"):
        dask_worker.serialise(passes, jax.random.key(0), {})
