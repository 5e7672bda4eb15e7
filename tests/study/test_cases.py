"""The cases of a study, their quantities and labels, and cases that are refused."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray")
import xarray

import nrjax
from nrjax.private_selection import Candidate
from nrjax.study import formats
from tests.study import cheap


class Ended(NamedTuple):
    """Fields with names that have another meaning in an interaction."""

    status: jax.Array
    epsilon: jax.Array
    utility: jax.Array
    stopped_step: jax.Array
    stopped_utility: jax.Array


class Custom(nrjax.Pytree):
    def run(self, key):
        number = jax.random.normal(key)
        status = jnp.int32(number > 0)
        return Ended(status, 3 * number, number, status, number)


class Whole(nrjax.Pytree):
    """A custom trial that returns outcomes, all of which stopped."""

    def run(self, key):
        number = jax.random.normal(key)
        return nrjax.Outcome(
            **dict.fromkeys(nrjax.Outcome._fields, number)
            | {"step": jnp.int32(2), "status": jnp.int32(nrjax.Status.STOPPED)}
        )


@pytest.mark.parametrize("keep", ["trials", "summary"])
def test_fields_of_a_custom_trial_have_no_other_meaning(tmp_path, keep):
    """With any names and dtypes, and even if it returns an Outcome."""
    cases = {"one": Custom(), "outcome": Whole()}
    results = cheap.study(cases).run(tmp_path, trials=30, keep=keep, progress=False)
    for name, case in zip(results, results.summary()["cases"], strict=True):
        assert results.statuses(name) is None
        assert set(case) == {"case", "trials", "seconds"}
        with pytest.raises(ValueError, match="quantity must be one of"):
            results.distribution(name)
        assert results.distribution(name, "epsilon").trials == 30
    utility = results.distribution("one", "utility")
    assert results.distribution("one", "epsilon").mean == pytest.approx(3 * utility.mean, rel=1e-6)
    assert results.distribution("one", "stopped_utility").mean == utility.mean
    for name in ("status", "stopped_step"):
        found = results.distribution("one", name)
        assert found.mean == pytest.approx(utility.fraction_above(0))
    if keep == "trials":
        assert results["one"]["status"].attrs == {}
        assert set(results["outcome"]) == set(nrjax.Outcome._fields)


def selected(key, epsilon):
    return Candidate(jax.random.laplace(key) / epsilon, 1)


@pytest.mark.parametrize("keep", ["trials", "summary"])
def test_the_epsilon_of_a_selection_is_in_the_report(tmp_path, keep):
    trial = nrjax.PoissonSelection(selected, [0.25, 0.5], 2.0, threshold=1.0)
    fields = dict.fromkeys(("stage", "score", "epsilon"), nrjax.Quantity(bins=None))
    cases = {"picked": trial, "moments": nrjax.Case(trial=trial, quantities=fields)}
    study = nrjax.Study("selections", cases, reporting=cheap.Quiet())
    results = study.run(tmp_path, trials=200, keep=keep, progress=False)
    case, moments = results.summary()["cases"]
    median = results.distribution("picked", "epsilon").quantile(0.5)
    assert case["stopping_epsilon"]["q50"] == median
    most = float(trial.cost(2))
    assert case["stopping_epsilon"]["q95"] == pytest.approx(most, rel=case["resolution"] + 1e-6)
    row, other = results.table().rows
    assert row[:4] == ("picked", "-", "-", formats.number(median))
    # Moments have no quantiles.
    assert ("stopping_epsilon" in moments) == (other[3] != "-") == (keep == "trials")


def release(outcome):
    return outcome.release


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Interactions with one threshold, one per step or a given goal, and custom trials."""
    walk, steps = cheap.Walk(np.float32(0)), np.linspace(-2, -0.5, 12)
    steps = cheap.interaction(rule=nrjax.PublicThreshold(steps))
    own = {"it": lambda outcome: -outcome.release}
    best = nrjax.Quantity(lambda walked: walked.path.max(), units="m")
    cases = {
        "rule": cheap.interaction(),
        "given": nrjax.Case(trial=cheap.interaction(), goal=-0.1, quantities=own),
        "steps": steps,
        "steps-given": nrjax.Case(trial=steps, goal=-0.3),
        "walk": walk,
        "chosen": nrjax.Case(trial=walk, quantities={"end": nrjax.Quantity(), "best": best}),
    }
    study = cheap.study(cases, quantities={"it": release})
    assert repr(study) == f"Study cheap: {', '.join(cases)}"
    return study.run(tmp_path_factory.mktemp("out"), trials=30, progress=False)


def test_quantities_are_those_of_the_study_and_the_case(results):
    np.testing.assert_array_equal(results["rule"]["it"], -results["given"]["it"])
    assert "it" not in results["walk"]
    chosen = results["chosen"]
    assert set(chosen) == {"end", "best"}
    assert chosen["best"].attrs == {"units": "m"}
    assert (chosen["best"] >= chosen["end"]).all()


def test_the_goal_is_given_or_the_threshold_of_the_rule(results):
    goals = [results.goal(name) for name in ("rule", "given", "steps", "steps-given")]
    assert goals == [-0.5, -0.1, None, -0.3]
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


def test_results_list_their_cases(results):
    names = ["rule", "given", "steps", "steps-given", "walk", "chosen"]
    assert list(results) == names
    assert "rule" in results
    assert len(results) == 6
    assert repr(results) == f"Results of 30 trials of {', '.join(names)} in {results.folder}"
    assert "<table>" in results._repr_html_()
    assert nrjax.Results.open(results.folder)["rule"].identical(results["rule"])
    assert "walk/outcome" in results
    assert all(name not in results for name in ("other", "rule/curve", "other/outcome", 3))
    assert set(dict(results)) == set(names)


@pytest.mark.long
def test_open_results_keep_the_trials_that_they_were_opened_with(tmp_path):
    """Even if the folder is extended meanwhile, as in a notebook."""
    study = cheap.study({"near": cheap.interaction()})
    first = study.run(tmp_path, trials=30, progress=False)
    opened = nrjax.Results.open(tmp_path)
    more = study.run(tmp_path, trials=50, progress=False)
    assert (opened.trials, more.trials) == (30, 50)
    np.testing.assert_array_equal(opened.values("near"), more.values("near")[:30])
    assert opened["near"].identical(first["near"])
    assert opened.table().rows == first.table().rows


def open_group(results, group):
    xarray.open_dataset(results.folder, engine="nrjax", group=group)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one["other"], "^case must be one of .'rule', 'given'"),
        (lambda one: one[3], "^case must be one of"),
        (lambda one: one["rule/curve"], "^pass must be one of .'outcome'"),
        (lambda one: one.goal("other"), "^case must be one of"),
        (lambda one: one.distribution("other"), "^case must be one of"),
        (lambda one: one.distribution("rule", "nope"), "^quantity must be one of"),
        (lambda one: one.distribution("rule", "epsilon", "nope"), "^pass must be one of"),
        (lambda one: one.values("rule", None), "^quantity must be one of"),
        (lambda one: one.values("walk", "stopped_end"), "^quantity must be one"),
        (lambda one: one.compare("rule", "other"), "^case must be one of"),
        (lambda one: one.plot("nothing"), "^name must be one of"),
        (lambda one: open_group(one, "other"), "^group must be one of"),
    ],
)
def test_unknown_names_raise_readable_key_errors(results, call, message):
    with pytest.raises(KeyError) as raised:
        call(results)
    assert re.match(message, str(raised.value))
    assert isinstance(raised.value, ValueError)  # which the command catches


@pytest.mark.parametrize("group", ["given", "steps", "walk"])
def test_xarray_opens_the_variables_of_results(results, group):
    found = xarray.open_dataset(results.folder, engine="nrjax", group=group)
    assert found.identical(results[group])
    assert ("stopping_epsilon" in found) == ("stopped" in found) == (group != "walk")
    assert ("shortfall" in found) == (group == "given")
    tree = xarray.open_datatree(results.folder, engine="nrjax")
    assert tree[f"{group}/outcome"].to_dataset().identical(results[group])


def test_xarray_may_give_its_options_for_decoding(results):
    of = {"filename_or_obj": results.folder, "engine": "nrjax"}
    for options in ({"decode_times": False}, {"mask_and_scale": False}, {"decode_cf": False}):
        found = xarray.open_dataset(**of, group="walk", **options)
        assert found.identical(results["walk"])
        tree = xarray.open_datatree(**of, **options)
        assert tree["walk/outcome"].to_dataset().identical(results["walk"])
    for call in (xarray.open_dataset, xarray.open_datatree):
        with pytest.raises((KeyError, TypeError), match="decode_tims"):
            call(**of, decode_tims=False)


def pairs(walked):
    return walked.path.reshape(2, 2)


def sides(outcome):
    return jnp.stack([outcome.release, -outcome.release])


def run_one(out, keep="trials", **given):
    case = nrjax.Case(**{"trial": cheap.interaction()} | given)
    return cheap.study({"one": case}).run(out, trials=30, keep=keep, progress=False)


two = nrjax.Quantity(sides, dims=("a", "b"))
numbered = nrjax.Quantity(sides, dims=("trial",))
short = {"quantities": {"it": sides}, "coordinates": {"side": ("it_0", (1.0,))}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trial": 3}, "trial must be an nrjax.Interaction, or a pytree"),
        ({"labels": {"epsilon": 1}}, "labels must be of other names"),
        ({"labels": {"x": np.inf}}, "must be strict JSON"),
        ({"quantities": {"utility": sides}}, r"quantities must be of other names .*\['utility'\]"),
        ({"quantities": {"shortfall": sides}}, "quantity must be none of"),
        ({"quantities": {"trial": sides}}, "quantity must be none of"),
        (
            {"quantities": {"stopped_it": sides}},
            "must be of names that do not start with 'stopped_'",
        ),
        ({"quantities": {"a b": sides}}, "quantity must be letters, digits"),
        ({"quantities": {"it": nrjax.Quantity()}}, "quantities must be one of"),
        (
            {"quantities": {"it": two}},
            r"dims of it must be a name for each of its 1",
        ),
        ({"quantities": {"it": numbered}}, "dimension must be none"),
        (short, "values of side must be 2, the size of 'it_0'"),
    ],
)
def test_a_wrong_case_is_refused_before_the_run(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        run_one(tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_a_curve_has_all_levels_of_its_schedule():
    with pytest.raises(ValueError, match=r"max_steps must be at least \d+, the levels of the sch"):
        nrjax.Curve(cheap.interaction(max_steps=2), {"utility": nrjax.Quantity()})


def test_a_quantity_that_cannot_be_summarised_is_refused(tmp_path):
    """It is kept with its axes if trials are kept."""
    given = {"trial": cheap.Walk(np.float32(0)), "quantities": {"it": pairs}}
    with pytest.raises(ValueError, match=r"quantity it must be of at most one axis"):
        run_one(tmp_path, "summary", **given)
    assert run_one(tmp_path, **given)["one"]["it"].shape == (30, 2, 2)
