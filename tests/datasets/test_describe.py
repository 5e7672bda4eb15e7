"""The dry run: how columns are understood, what is wrong, and the line to type."""

import datetime
import json
import subprocess
import sys
import time

import numpy as np
import pytest

from nrjax import datasets
from nrjax.datasets import describe, from_frame
from tests.own_tables import filled, typed

pandas = pytest.importorskip("pandas")

ROWS = 60
SPREAD = np.arange(ROWS) ** 2 % 59


def texts(pattern):
    return [pattern.format(number) for number in SPREAD]


COLUMNS = {
    "age": SPREAD * 1.5,
    "height": [1.75, None, 1.80] * 20,
    "children": [0, 1, 2] * 20,
    "customer id": SPREAD * 7 + np.arange(ROWS) * 1000,
    "row": np.arange(ROWS),
    "name": [f"{chr(65 + n % 26)}{n}th" for n in range(ROWS)],
    "note": [f"a visit of which this is note {n % 55}, and more" for n in range(ROWS)],
    "street": [f"street {n % 55}" for n in range(ROWS)],
    "city": ["Bern", "Basel", "Genf"] * 20,
    "vip": [True, False] * 30,
    "vip?": [True, None] * 30,
    "day": [datetime.date(2020, 1, 1 + n % 30) for n in range(ROWS)],
    "iso": [f"2020-01-{1 + n % 30:02}" for n in range(ROWS)],
    "german": [f"{1 + n % 30}.1.2020" for n in range(ROWS)],
    "income": texts("1,{:03}"),
    "rate": texts("0,{:02}"),
    "dose": ["1.5", "?", "2", "3"] * 15,
    "price": texts("${}"),
    "digits": texts("{}"),
    "one": [7] * ROWS,
    "endless": [np.inf, 1.5, 2.5] * 20,
    "rare": [None, None, 1.5] * 20,
    "nothing": [None] * ROWS,
    "mixed": [1, "1", 2] * 20,
    "left": ["no", "no", "yes", "yes"] * 15,
}
UNDERSTOOD = {
    "age": ("numbers", 0, 0, ""),
    "height": ("numbers", 20, 0, ""),
    "children": ("numbers", 0, 0, "a class"),
    "customer id": ("numbers", 0, 0, "an id"),
    "row": ("numbers", 0, 0, "an id"),
    "name": ("text", 0, 0, "an id"),
    "note": ("text", 0, 0, "free text"),
    "street": ("text", 0, 0, "many categories"),
    "city": ("text", 0, 0, "a class"),
    "vip": ("booleans", 0, 0, ""),
    "vip?": ("booleans", 30, 0, ""),
    "day": ("dates", 0, 0, ""),
    "iso": ("text", 0, 0, "dates"),
    "german": ("text", 0, 0, "dates in another format"),
    "income": ("text", 0, 60, "numbers"),
    "rate": ("text", 0, 60, "numbers"),
    "dose": ("text", 0, 15, "numbers"),
    "price": ("text", 0, 60, "numbers with units"),
    "digits": ("text", 0, 0, "numbers"),
    "one": ("numbers", 0, 0, "a constant"),
    "endless": ("numbers", 0, 20, "infinite numbers"),
    "rare": ("numbers", 40, 0, "mostly missing"),
    "nothing": ("empty", 60, 0, ""),
    "mixed": ("mixed", 0, 0, ""),
    "left": ("text", 0, 0, "a class"),
}


def test_each_column_is_understood():
    description = describe(COLUMNS, "left")
    for column in description.columns:
        found = (column.kind, column.missing, column.unparsable, column.looks_like)
        assert found == UNDERSTOOD[column.name], column.name
    said = "\n".join(description.problems)
    for text in (
        "'height' has 20 missing cells of 60: fill them in, or drop these rows (missing='drop'",
        "'name' looks like an id. Leave it out.",
        "'income' is text: 60 cells are no plain number. Add --read thousands=, for the mark",
        "'rate' is text: 60 cells are no plain number. Add --read decimal=, for the decimal mark",
        "'dose' is text: 15 cells are no plain number. Add --read na_values=WORD",
        "'price' is text: 60 cells are no plain number. Write numbers without units, or leave",
        "'german' looks like dates in another format. Write dates as YYYY-MM-DD",
        "'street' looks like many categories. List the categories that matter",
    ):
        assert text in said
    for name in ("age", "children", "city", "vip'", "iso", "digits", "left"):
        assert f"'{name}" not in said
    for value in ("Bern", "2020-01", "street 1", "1,0", "$"):  # no values of the data
        assert value not in str(description)


def test_a_target_that_cannot_be_predicted_is_named():
    problems = describe(COLUMNS, "city").problems
    assert any("the target 'city' is text of 3 values: two labels" in each for each in problems)
    problems = describe(COLUMNS, "children").problems
    assert any("the target 'children' has 3 different whole" in each for each in problems)
    with pytest.raises(ValueError, match="target must be a column of table"):
        describe(COLUMNS, "country")


STATED = {
    **{name: (0, 100) for name in ("age", "children", "digits", "one")},
    "height": (1, 3),
    **{name: ("2020-01-01", "2020-12-31") for name in ("day", "iso")},
    **{"city": ["Bern", "Basel", "Genf"], "street": ["street 1"], "left": ["no", "yes"]},
}


@pytest.mark.filterwarnings("ignore:.* of 'street' are none of its")
def test_the_printed_lines_work_once_filled_in(tmp_path):
    """In Python and in the shell, for every kind of column that a file can hold."""
    columns = {name: COLUMNS[name] for name in COLUMNS if name not in ("rate", "income")}
    description = describe(columns, "left")
    code = description.command.replace("nrjax.datasets.", "")
    for name, limits in STATED.items():
        for placeholder in ("(LOW, HIGH)", "CATEGORIES", "LABELS"):
            code = code.replace(f"{name!r}: {placeholder}", f"{name!r}: {limits!r}")
    code = code.replace("'dose': (LOW, HIGH), ", "").replace("leave_out=[", "leave_out=['dose', ")
    assert "LOW" not in code
    data = eval(code, {"from_frame": from_frame, "frame": columns})
    assert data.task == "logistic"
    path = tmp_path / "own.csv"
    pandas.DataFrame(columns | {"dose": columns["dose"]}).to_csv(path, index=False)
    description, file = describe(path, "left"), tmp_path / "bounds.toml"
    file.write_text(filled(description.template, lambda name: STATED.get(name, (0, 100))), "utf-8")
    again = datasets.from_file(path, "left", bounds=file, **typed(description))
    assert "dose [0, 100]" in again.summary


def test_stated_bounds_are_tried():
    frame = {"age": [20, 30, 40, None], "left": ["no", "yes", "no", "yes"]}
    bounds = {"age": (18, 90), "left": ["no", "yes"]}
    tried = describe(frame, "left", bounds=bounds, missing="drop")
    assert not tried.problems
    assert "left (no is -1, yes is 1) on age [18, 90], intercept; 3 rows" in tried.verdict
    assert tried.verdict in str(tried)
    assert "bounds={'age': (18, 90), 'left': ['no', 'yes']}" in tried.command
    wrong = describe(frame, "left", bounds={"age": (90, 18)})
    assert "LOW < HIGH" in "".join(wrong.problems)
    assert wrong.verdict == ""
    assert any(
        "list of categories" in each for each in describe(frame, "left", bounds={"age": 5}).problems
    )


def test_a_wide_table_is_short():
    description = describe({f"column {number}": [1.5, 2.5] for number in range(300)})
    assert "and 240 more columns" in str(description)
    assert "bounds='bounds.toml'" in description.command
    assert description.template.count("{ low = LOW, high = HIGH }") == 300
    assert len(str(description)) < 5000
    assert len(description.columns) == 300


def test_a_dry_run_takes_no_time_and_compiles_nothing(tmp_path):
    """Reading and describing 10,000 rows of 30 columns, in a process of its own."""
    rng = np.random.default_rng(0)
    frame = {f"number {n}": rng.normal(size=10_000).round(4) for n in range(20)}
    frame |= {f"text {n}": rng.choice(["a", "b", "c"], 10_000) for n in range(8)}
    frame |= {"note": [f"a long comment {n}, of some words" for n in range(10_000)]}
    frame |= {"left": rng.choice(["no", "yes"], 10_000)}
    path = tmp_path / "own.csv"
    pandas.DataFrame(frame).to_csv(path, index=False)
    code = f"""
import json, jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name) if "compile" in name else None
)
from nrjax.cli import main
table = ["--data", {str(path)!r}, "--target"]
assert main(["data", {str(path)!r}, "--target", "left"]) == 0
assert main(["run", *table, "gone"]) == 2
assert main(["run", *table, "left", "--bounds", "x=0:1"]) == 2
assert main(["choose", "logistic", "--error", "1", *table, "left"]) == 2
print(json.dumps(compiled))
"""
    run = [sys.executable, "-c", code]
    out = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(out.stdout.splitlines()[-1]) == []
    start = time.process_time()
    assert len(describe(path, "left").columns) == 30
    assert time.process_time() - start < 2  # 0.3 s, next to the import of pandas and JAX


MARKS = {
    "thousands and decimals": (["1.234,56", "234,56", "12.000,5"], "thousands=. decimal=,"),
    "decimals": (["1,5", "234,56", "12,25"], "decimal=,"),
    "thousands": (["1,234", "234", "12,000"], "thousands=,"),
    "a sign for a gap": (["27.3", "-", "31"], "na_values=WORD"),
}


@pytest.mark.parametrize("name", MARKS)
def test_the_marks_of_numbers_are_named_at_once(name):
    cells, read = MARKS[name]
    description = describe({"pay": cells * 10, "y": [0, 1, 0.5] * 10}, "y")
    assert description.columns[0].read == read
    assert any(f"Add --read {read} for" in problem for problem in description.problems)


@pytest.mark.parametrize("cells", [range(100), [f"p{n}" for n in range(100)]])
def test_an_id_that_rows_share_may_identify_people(cells):
    description = describe({"patient_id": [*cells, *cells], "y": [0.0, 1.0] * 100}, "y")
    assert description.columns[0].left_out
    assert "--person and --rows-per-person" in description.problems[0]
