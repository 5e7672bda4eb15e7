"""What a study may be made of: its cases, their quantities and labels; and what is refused."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from tests.study import cheap

KEEP = ("trials", "summary")


def run(out, cases, **options):
    return cheap.study(cases).run(out, trials=30, progress=False, **options)


class Ended(NamedTuple):
    """Names that mean something else of an interaction."""

    status: jax.Array
    step: jax.Array
    epsilon: jax.Array
    stopped_step: jax.Array


class OfItsOwn(nrjax.Pytree):
    def run(self, key):
        number = jax.random.normal(key)
        return Ended(number, 2 * number, 3 * number, number > 0)


class Scanned(nrjax.Pytree):
    """A session that gives the path of an interaction."""

    def run(self, key):
        return nrjax.scan_path(key, cheap.interaction())


@pytest.mark.parametrize("keep", KEEP)
def test_fields_of_a_session_mean_what_it_says(tmp_path, keep):
    results = run(tmp_path, {"one": OfItsOwn(), "other": Scanned()}, keep=keep)
    for name in results:
        assert results.statuses(name) is None
    assert set(results.summary()["cases"][0]) == {"case", "trials", "seconds"}
    status = results.distribution("one", "status")
    assert results.distribution("one", "epsilon").mean == pytest.approx(3 * status.mean, rel=1e-6)
    above = results.distribution("one", "stopped_step").mean
    assert above == pytest.approx(status.fraction_above(0))
    assert len(results.levels("other", "epsilon", "outcome")) == 12
    if keep == "trials":
        assert results["one"]["step"].attrs == {}
        assert results["other"]["release"].shape == (30, 12)
        assert "stopped" not in results["other"]


def test_quantities_of_a_session_are_chosen(tmp_path):
    walk = cheap.Walk(np.float32(0))
    best = nrjax.Quantity(lambda walked: walked.path.max(), units="m")
    quantities = {"end": nrjax.Quantity(), "best": best}
    found = run(tmp_path, {"walk": nrjax.Case(trial=walk, quantities=quantities)})["walk"]
    assert set(found) == set(quantities)
    assert found["best"].attrs == {"units": "m"}
    assert (found["best"] >= found["end"]).all()


@pytest.mark.parametrize("keep", KEEP)
def test_a_curve_may_keep_what_an_outcome_has_too(tmp_path, keep):
    levels = {name: nrjax.Quantity(bins="fitting") for name in ("epsilon", "utility", "status")}
    levels["epsilon"] = nrjax.Quantity(bins=nrjax.LogBins(-6, 5, 12))
    curve = nrjax.Curve(cheap.interaction(), levels)
    results = run(
        tmp_path, {"near": nrjax.Case(trial=cheap.interaction(), curves={"c": curve})}, keep=keep
    )
    epsilon = [one.quantile(50) for one in results.levels("near", "epsilon", "c")[:2]]
    ratio = 20 / 0.3
    assert epsilon == pytest.approx([0.3, 0.3 * ratio ** (1 / 11)], rel=1e-3)
    with pytest.raises(ValueError, match="quantity = 'epsilon': must be one number a trial"):
        results.distribution("near", "epsilon", "c")


def test_quantities_of_the_study_are_the_interactions(tmp_path):
    cases = {"near": cheap.interaction(), "walk": cheap.Walk(np.float32(0))}
    own = nrjax.Case(trial=cheap.interaction(), quantities={"it": lambda outcome: -outcome.release})
    study = cheap.study(cases | {"own": own}, quantities={"it": lambda outcome: outcome.release})
    results = study.run(tmp_path, trials=30, progress=False)
    np.testing.assert_array_equal(results["near"]["it"], -results["own"]["it"])
    assert "it" not in results["walk"]


def test_the_goal_is_the_rules_threshold_or_what_is_given(tmp_path):
    steps = nrjax.PublicThreshold(np.linspace(-2, -0.5, 12))
    cases = {
        "rule": cheap.interaction(),
        "given": nrjax.Case(trial=cheap.interaction(), goal=-0.1),
        "steps": cheap.interaction(rule=steps),
        "steps, given": nrjax.Case(trial=cheap.interaction(rule=steps), goal=-0.3),
    }
    cases = {name.replace(", ", "-"): case for name, case in cases.items()}
    results = run(tmp_path, cases)
    assert [results.goal(name) for name in cases] == [-0.5, -0.1, None, -0.3]
    found = {case["case"]: case for case in results.summary()["cases"]}
    stopped = results["given"]["stopped"].values
    met = (results["given"]["utility"].values >= -0.1) & stopped
    assert 0 < met.mean() == found["given"]["met"] < found["given"]["stopped"]
    assert found["rule"]["met"] == found["rule"]["stopped"]
    assert "met" not in found["steps"]
    assert "shortfall" not in results["steps"]
    assert "steps-given: " in str(results.table())
    missed = results["steps-given"]["shortfall"].values[results["steps-given"]["stopped"].values]
    assert missed.max() == pytest.approx(found["steps-given"]["shortfall"]["max"])


def of(quantity, name="it", **changes):
    return {"one": nrjax.Case(trial=cheap.interaction(), quantities={name: quantity}, **changes)}


def plane(outcome):
    return jnp.ones((2, 3)) * outcome.release


def sides(outcome):
    return jnp.stack([outcome.release, -outcome.release])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {}, r"cases = \{\}: must be at least one, by name"),
        (lambda: {"one": 3}, "trial = 3: must be a nrjax.Interaction, or a session"),
        (
            lambda: {"one": nrjax.Case(trial=cheap.interaction(), labels={"epsilon": 1})},
            r"labels = \['epsilon'\]: must be names that the summary has no other meaning for",
        ),
        (lambda: {"a/b": cheap.interaction()}, "name = 'a/b': must be letters, digits"),
        (
            lambda: of(plane, "utility"),
            r"quantities = \['utility'\]: must be names that an Outcome",
        ),
        (lambda: of(plane, "shortfall"), r"quantities = \['shortfall'\]: must be names"),
        (lambda: of(plane, "trial"), r"quantities = \['trial'\]: must be names"),
        (lambda: of(plane, "stopped_it"), r"\['stopped_it'\]: must be names that do not begin"),
        (lambda: of(plane, "a b"), "variable = 'a b': must be letters, digits"),
        (lambda: of(nrjax.Quantity(), "nothing"), "quantities = 'nothing': must be one of"),
        (lambda: of(nrjax.Quantity(), "it"), "quantities = 'it': must be one of"),
        (
            lambda: of(nrjax.Quantity(sides, dims=("a", "b"))),
            r"dims of it = \('a', 'b'\): must be a name for each of its 1 axes",
        ),
        (lambda: of(nrjax.Quantity(sides, dims=("trial",))), "dimension = 'trial': must be none"),
        (
            lambda: of(sides, coordinates={"side": ("it_0", (1.0,))}),
            "values of side = 1: must be 2, the size of 'it_0'",
        ),
        (lambda: of(sides, labels={"x": np.inf}), "must be strict JSON"),
    ],
)
def test_what_is_no_study_is_refused_before_anything_is_run(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "out", make())
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_summarised_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"quantity it = \(2, 3\): must be of at most one axis"):
        run(tmp_path / "out", of(plane), keep="summary")
    assert run(tmp_path / "kept", of(plane))["one"]["it"].shape == (30, 2, 3)
    for name in ("study", ""):
        with pytest.raises(ValueError, match="name = "):
            nrjax.Study("" if not name else 3, of(plane))  # pyright: ignore[reportArgumentType]


def test_results_say_what_there_is(tmp_path):
    results = run(tmp_path, {"near": cheap.interaction(), "walk": cheap.Walk(np.float32(0))})
    assert list(results) == ["near", "walk"]
    assert "near" in results
    assert len(results) == 2
    assert repr(results) == f"Results of 30 trials of near, walk in {tmp_path}"
    assert "<table>" in results._repr_html_()
    assert repr(cheap.study()) == "Study cheap: near, far, low, high"
    again = nrjax.Results.open(tmp_path)
    assert again["near"].identical(results["near"])
    with pytest.raises(KeyError, match="other: must be one of near, walk"):
        results["other"]
    with pytest.raises(ValueError, match="pass = 'curve': must be one of"):
        results["near/curve"]
    with pytest.raises(ValueError, match="quantity = 'stopped_end': must be one of"):
        results.values("walk", "stopped_end")
    with pytest.raises(ValueError, match="name = 'nothing': must be one of"):
        results.plot("nothing")
