"""Wrong arguments of a study are refused by name before a trace."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from nrjax.cli import loading
from nrjax.cli.loading import with_absolute_paths
from nrjax.papers import skellam_counts, whitehouse2022
from nrjax.study.options import check_settings
from tests.study import cheap

ONE = cheap.interaction()
HEIGHT = {"utility": nrjax.Quantity()}


def curve(**given):
    return nrjax.Curve(**{"interaction": ONE, "quantities": HEIGHT} | given)


def norm(outcome):
    return jnp.abs(outcome.release)


def case(**given):
    return nrjax.Case(**{"trial": ONE} | given)


def study(cases=None, **given):
    return nrjax.Study("doors", {"near": ONE} if cases is None else cases, **given)


def outcomes(given, **more):
    return nrjax.Outcomes(given, **more)


def an_outcome(trials=3):
    fields = dict.fromkeys(nrjax.Outcome._fields, np.zeros(trials))
    return nrjax.Outcome(**fields | {"status": np.full(trials, nrjax.Status.STOPPED)})


def with_field(name, value=0):
    kind = dataclasses.make_dataclass("Settings", [(name, type(value), value)], frozen=True)
    return kind()


MAPPING = "must be a mapping of names to"
TAKEN = "must be of other names than options of a run"
CONSTRUCTORS = [
    # cases
    (study, [[ONE]], f"cases {MAPPING} interactions"),
    (study, [{1: ONE}], f"cases {MAPPING}"),
    (study, [{}], "cases must be at least one, by name"),
    (nrjax.Study, ["", {}], "name must be text that is not empty"),
    (study, [{"a b": ONE}], "case must be letters, digits"),
    (study, [{"manifest.json": ONE}], r"case must be none of the reserved names"),
    (study, [{"Manifest.json": ONE}], r"case must be none of the reserved names"),
    (study, [{"A": ONE, "a": ONE}], r"case must be names that differ in more"),
    (study, [{"near": 3}], "case 'near': trial must be an nrjax.Interaction"),
    (outcomes, [[an_outcome()]], f"outcomes {MAPPING} nrjax.Outcome"),
    (outcomes, [{1: an_outcome()}], f"outcomes {MAPPING}"),
    (outcomes, [{"a": an_outcome(0)}], "trials must be the same number in all outcomes"),
    # labels
    (case, {"labels": ["x"]}, f"labels {MAPPING}"),
    (case, {"labels": {1: 2}}, f"labels {MAPPING}"),
    (case, {"labels": {"x": np.nan}}, r"labels\['x'\] must be strict JSON"),
    (case, {"labels": {"x": object()}}, r"labels\['x'\] must be strict JSON"),
    # quantities and curves
    (case, {"quantities": [norm]}, f"quantities {MAPPING} functions"),
    (study, {"quantities": [norm]}, f"quantities {MAPPING} functions"),
    (case, {"quantities": {"it": "norm"}}, r"quantities\['it'\] must be a function"),
    (study, {"quantities": {"it": 3}}, r"case 'near': quantities\['it'\] must be a function"),
    (nrjax.Quantity, [3], "of must be a function, or None"),
    (nrjax.Quantity, {"dims": "axis"}, "dims must be a tuple of names"),
    (nrjax.Quantity, {"bins": 20}, "bins must be nrjax.LogBins"),
    (nrjax.Quantity, {"bins": np.zeros(2)}, "bins must be nrjax.LogBins"),
    (case, {"curves": [curve()]}, f"curves {MAPPING} nrjax.Curve"),
    (case, {"curves": {"outcome": curve()}}, "curve must be none of the reserved names"),
    (case, {"curves": {"Outcome": curve()}}, "curve must be none of the reserved names"),
    (case, {"curves": {"a": curve(), "A": curve()}}, r"curve must be names that"),
    (case, {"curves": {"a": ONE}}, r"curves\['a'\] must be an nrjax.Curve"),
    (curve, {"interaction": 3}, "interaction must be an nrjax.Interaction"),
    (curve, {"along": {"x": [1.0]}}, r"along\['x'\] must be .* numbers, one per level"),
    (curve, {"along": {"x": "low"}}, r"along\['x'\] must be numbers, not text"),
    (case, {"coordinates": {"x": [1.0, 2.0]}}, r"coordinates\['x'\] must be an axis and num"),
    (case, {"coordinates": {"x": ("axis", "low")}}, r"coordinates\['x'\] must be numbers, not"),
    (curve, {"quantities": {"it": norm}}, r"quantities\['it'\] must be an nrjax.Quantity"),
    (curve, {"quantities": {"a b": nrjax.Quantity()}}, "quantity must be letters"),
    # goals
    *((case, {"goal": one}, "goal must be a finite number") for one in (np.nan, True, "1", [1.0])),
    (outcomes, {"given": {"a": an_outcome()}, "goals": {"a": np.nan}}, r"goals\['a'\] must"),
    (outcomes, {"given": {"a": an_outcome()}, "goals": {"b": 1.0}}, "name in goals must be"),
    (outcomes, {"given": {"a": an_outcome()}, "goals": [1.0]}, f"goals {MAPPING}"),
    (outcomes, {"given": {"a": an_outcome()}, "goals": np.ones(2)}, f"goals {MAPPING}"),
    (
        outcomes,
        {"given": {"a": an_outcome()}, "notions": {"a": 0}},
        r"notions\['a'\] must be 'pure'",
    ),
    # the rest
    (case, {"batching": 64}, "batching must be an nrjax.Batching"),
    (study, {"reporting": nrjax.Reporting}, "reporting must be an nrjax.Reporting"),
    (study, {"settings": {"levels": 3}}, "settings must be a dataclass"),
    (study, {"settings": with_field("x", np.inf)}, r"settings\.x must be strict JSON"),
    *(
        (study, {"settings": with_field(name)}, rf"fields of settings {TAKEN} \(got \['{name}'\]\)")
        for name in ("out", "overwrite", "keep", "chunk", "until_se", "most_trials")
    ),
    (study, {"facts": [1]}, f"facts {MAPPING}"),
    (study, {"facts": np.zeros(2)}, f"facts {MAPPING}"),
    (study, {"quantities": np.zeros(2)}, f"quantities {MAPPING} functions"),
    (study, {"compares_relations": "no"}, "compares_relations must be True or False"),
    (study, {"source": 3}, "source must be text, or None"),
    (study, {"facts": {"x": np.inf}}, r"facts\['x'\] must be strict JSON"),
    *(
        (study, {"facts": {name: 99}}, r"facts must be of other names")
        for name in ("seed", "settings", "fingerprints", "study", "source", "nrjax", "device")
    ),
]


@pytest.mark.parametrize(("function", "given", "message"), CONSTRUCTORS)
def test_wrong_arguments_are_refused_at_construction(function, given, message):
    with pytest.raises(ValueError, match=message):
        function(*given) if isinstance(given, list) else function(**given)


@pytest.mark.parametrize(
    ("folder", "given", "message"),
    [
        *((one, {}, "folder must be the path of a folder") for one in (None, "", "a\0b", 3)),
        ("out", {"overwrite": "no"}, "overwrite must be True or False"),
        ("out", {"progress": "yes"}, "progress must be True or False"),
        ("out", {"client": "tcp://x:1"}, "client must be a dask.distributed.Client"),
        ("out", {"keep": "all"}, "keep must be 'trials' or 'summary'"),
        ("out", {"trials": 1.5}, "trials must be an integer"),
    ],
)
def test_wrong_options_are_refused_at_the_start_of_a_run(
    tmp_path, monkeypatch, folder, given, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jax, "eval_shape", None)  # nothing is traced
    with pytest.raises(ValueError, match=message):
        study().run(folder, **given)
    assert not list(tmp_path.iterdir())


def text(outcome):
    return "near"


def nothing(outcome):
    return None


def empty(outcome):
    return jnp.zeros(0)


@pytest.mark.parametrize(
    ("function", "shown"), [(text, "'near'"), (nothing, "None"), (empty, r".*\(0,\).*")]
)
def test_a_quantity_that_gives_no_numbers_is_named(tmp_path, function, shown):
    one = study(quantities={"it": function})
    message = rf"quantity it must be a number, or an array of .*, per trial \(got {shown}\)"
    with pytest.raises(ValueError, match=message):
        one.run(tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


class Nothing(NamedTuple):
    pass


class Custom(nrjax.Pytree):
    result: Any

    def run(self, key):
        return self.result


@pytest.mark.parametrize("result", [Nothing(), {"x": 1.0}, 1.0, None])
@pytest.mark.parametrize("keep", ["trials", "summary"])
def test_a_custom_trial_without_named_results_is_refused(tmp_path, result, keep):
    message = "result of the trial's run must be a NamedTuple of arrays, with at least one field"
    with pytest.raises(ValueError, match=message):
        study({"own": Custom(result)}).run(tmp_path / "out", keep=keep, progress=False)
    assert not (tmp_path / "out").exists()


def test_numbers_of_numpy_and_jax_become_numbers_of_python(tmp_path):
    given = {"a": np.float64(0.5), "b": np.int32(2), "c": jnp.asarray(True), "d": np.arange(2)}
    one = case(labels=given, goal=np.float32(-0.1))
    assert one.labels == {"a": 0.5, "b": 2, "c": True, "d": [0, 1]}
    assert one.goal == -0.1
    assert study(facts={"rows": np.int64(3)}).facts == {"rows": 3}
    results = cheap.study({"near": one}, facts={"rows": np.int64(3)})
    results = results.run(tmp_path, trials=5, progress=False)
    assert results.about["rows"] == 3
    assert results["near"].attrs["d"] == [0, 1]


def test_a_study_may_share_its_seed_and_number_of_trials(tmp_path):
    """The papers' settings have no other options of a run."""
    shared = dataclasses.make_dataclass("Settings", [("trials", int, 7), ("seed", int, 3)])()
    results = cheap.study({"near": ONE}, settings=shared).run(tmp_path, progress=False)
    assert (results.trials, results.about["seed"]) == (7, 3)
    for name in loading.STUDIES:
        check_settings(loading.find(name).settings)


@pytest.mark.parametrize("name", ["keep", "out", "workers", "scheduler"])
def test_the_command_refuses_settings_with_names_of_its_options(tmp_path, name):
    file = tmp_path / "own.py"
    file.write_text(
        "import dataclasses\n\n@dataclasses.dataclass\nclass Settings:\n"
        f"    {name}: float = 0.9\n\ndef study(settings: Settings):\n    pass\n"
    )
    with pytest.raises(ValueError, match=rf"fields of settings {TAKEN} \(got \['{name}'\]\)"):
        loading.find(str(file))


@dataclasses.dataclass(frozen=True)
class Files:
    title: str = "losses.csv"
    data: Path = Path("own.npz")
    more: tuple[Path, ...] = (Path("a.csv"), Path("~/b.csv"))


def test_only_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = with_absolute_paths(Files())
    assert settings.title == "losses.csv"
    assert settings.data == tmp_path / "own.npz"
    assert settings.more == (tmp_path / "a.csv", tmp_path / "b.csv")
    # The papers' `data` are names or files.
    absolute = str(tmp_path / "own.csv")
    assert skellam_counts.Settings(data="own.csv").data == absolute
    chosen = whitehouse2022.Settings(data=("flights", "own.csv"), target="y")
    assert chosen.data == ("flights", absolute)
    assert whitehouse2022.Settings().data == ("flights",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep": "summary"}, "keep must be 'trials', with which the run in"),
        ({"chunk": 3}, r"chunk must be None, with which the run in"),
        ({"seed": 4}, "seed must be 0, with which the run in"),
    ],
)
def test_other_options_than_those_of_the_run_are_refused(kept, given, message):
    with pytest.raises(ValueError, match=message + ".* was started .*Leave it out, choose another"):
        cheap.study({"near": ONE}).run(kept.folder, progress=False, **given)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return cheap.study({"near": ONE}).run(tmp_path_factory.mktemp("out"), trials=9, progress=False)
