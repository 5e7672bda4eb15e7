"""The dry run: how columns are understood, what is wrong, and the line to type."""

import datetime
import json
import subprocess
import sys
import time
from typing import Any

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
    **{name: ("2020-01-01", "2020-12-31") for name in ("day", "iso", "german")},
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


PEOPLE = {
    "patient": (12, True),
    "Patient": (200, True),
    "customerId": (60, True),
    "user_no": (60, True),
    "subject": (12, True),
    "Person ID": (12, True),
    "patient_age": (12, False),
    "customers": (12, False),
    "user": (3, False),
    "visit id": (12, False),
    "weight": (12, False),
}


@pytest.mark.parametrize("pattern", ["{}", "P{}x"])
def test_people_are_recognised_by_names_and_counts(pattern):
    """Each value stands in two or more rows. The values themselves do not matter."""
    for name, (values, hinted) in PEOPLE.items():
        cells = [pattern.format(7 * n) for n in range(values)] * 2
        cells = [int(cell) for cell in cells] if pattern == "{}" else cells
        description = describe({name: cells, "y": [0.0, 1.0] * values}, "y")
        (column, _), said = description.columns, "".join(description.problems)
        assert column.may_be_people == hinted, name
        assert ("--person and --rows-per-person" in said) == hinted, name
        assert not description.people


@pytest.mark.parametrize(("values", "named"), [(60, True), (50, False)])
def test_any_column_of_many_shared_values_is_named_once(values, named):
    numbers, texts = np.arange(values) * 3.0, [f"s {n}x" for n in range(values)]
    frame = {"weight": [*numbers] * 2, "street": texts * 2, "half": [*(numbers / 2)] * 2}
    description = describe(frame | {"y": [0.0, 1.0] * values}, "y")
    assert description.people == (("weight", "street") if named else ())
    sentence = "By the number of different values, it could only be 'weight' or 'street'."
    assert (sentence in str(description)) == named
    options = {"person": "weight", "rows_per_person": 2}
    assert not describe(frame | {"y": [0.0, 1.0] * values}, "y", **options).people


DATES = "day;month;both;year;pay\n" + "".join(
    f"{1 + n % 30}.06.2023;06/{1 + n % 30}/2023;0{1 + n % 9}/06/2023;2023/06/{1 + n % 30};1.{n}0\n"
    for n in range(10, 40)
)


def test_dates_are_found_before_marks_of_thousands(tmp_path):
    """27.06.2023 as the number 27062023 is the planted fault of pandas."""
    path = tmp_path / "own.csv"
    path.write_text(DATES)
    for read in ({}, {"thousands": "."}):
        description = describe(path, read=read)
        assert [column.looks_like for column in description.columns[:4]] == [
            "dates in another format"
        ] * 4
        said = "\n".join(description.problems)
        for hint in (
            "add --read parse_dates=day dayfirst=True, or",
            "add --read parse_dates=month, or",
            "add --read parse_dates=both (and dayfirst=True, if the day comes first), or",
        ):
            assert hint in said
        assert "parse_dates=day dayfirst=True" in description.command
        assert "--leave-out month both year" in description.command
        assert "day=LOW:HIGH" in description.command
        assert "2023" not in str(description)
    assert description.columns[4].kind == "numbers"  # 1.100 has a mark in its place
    bounds: dict[str, Any] = {"day": (1, 2), "pay": (0, 9999)}
    leave_out = ["month", "both", "year"]
    with pytest.raises(ValueError, match=r"column 'day' of .*must be numbers, as its bounds are"):
        datasets.from_file(path, "pay", read=read, bounds=bounds, leave_out=leave_out)
    bounds["day"] = ("2023-06-01", "2023-06-30")
    read = typed(description)["read"]
    data = datasets.from_file(path, "pay", read=read, bounds=bounds, leave_out=leave_out)
    assert "day [2023-06-01, 2023-06-30], intercept" in data.summary
    assert data.y.min() == pytest.approx(2 * 1100 / 9999 - 1)
    two = describe(path, leave_out=["day"], read={"thousands": "."}).command
    assert "--read parse_dates=month,both,year thousands=. --leave-out day" in two


def test_marks_of_thousands_stand_before_three_digits(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("a;b;c;d;e\n1.5;1.000;12.345.678,5;1;-2.000\n7;2;1,25;2;x\n")
    found = describe(path, read={"thousands": ".", "decimal": ","}).columns
    assert [column.kind for column in found] == ["text", *["numbers"] * 3, "text"]
    path.write_text("a;b\n1,00,000;1,2\n2;3\n")
    assert [c.kind for c in describe(path, read={"thousands": ","}).columns] == ["numbers", "text"]


def test_warnings_about_stated_bounds_are_problems():
    frame = {"bmi": np.linspace(20, 30, 40), "sex": ["F", "M"] * 20, "y": SPREAD[:40] * 1.0}
    bounds = {"bmi": (15, 16), "sex": ["f", "m"], "y": (0, 60)}
    description = describe(frame, "y", bounds=bounds)
    starts = "no value of 'bmi' lies within its bounds", "no value of 'sex' is one of its 2"
    for problem, start in zip(description.problems, starts, strict=True):
        assert problem.startswith(start)
    assert "Warning" not in str(description)
    assert "No problem" not in str(description)
    assert description.verdict.startswith("With these bounds:\ntable: ridge regression of y")


def test_no_line_is_printed_that_must_fail():
    frame = {"age": [20, 30, 40, 50], "party": ["a", "b", "c", "a"]}
    for bounds in (None, {"age": (0, 90)}):
        description = describe(frame, "party", bounds=bounds)
        assert description.command == ""
        assert "A line to type follows when the target is recoded." in str(description)
        assert str(description).count("the target") == 2  # with that sentence
        assert "values of the target" not in str(description)
        assert "Recode it first" in description.problems[0]
    wrong = {"age": ("2020-01-01", "2020-12-31"), "party": ["a", "b"], "Age": (1, 2)}
    description = describe(frame | {"party": ["a", "b", "a", "b"]}, "party", bounds=wrong)
    assert "{'party': ['a', 'b'], 'age': (LOW, HIGH)}" in description.command
    assert "Did you mean 'age'?" in "".join(description.problems)


@pytest.mark.parametrize(("sign", "encoding"), [("€", "cp1252"), ("é", "latin-1")])
def test_an_encoding_is_proposed_that_reads_signs(sign, encoding, tmp_path):
    path = tmp_path / "own.csv"
    path.write_bytes(f"pay {sign},y\n1,2\n3,4\n5,7\n".encode("cp1252"))
    with pytest.raises(ValueError, match=f"in the shell --read encoding={encoding}"):
        describe(path, "y")
    assert f"'pay {sign}=LOW:HIGH'" in describe(path, "y", read={"encoding": encoding}).command
    wrong = describe(path, "y", read={"encoding": "latin-1"})
    bounds = {column.name: (0, 9) for column in wrong.columns}
    data = datasets.from_file(path, "y", read={"encoding": "latin-1"}, bounds=bounds)
    for text in (str(wrong), data.summary):
        assert not any("\x7f" <= letter <= "\x9f" for letter in text)
    assert ("control characters" in str(wrong)) == (encoding == "cp1252")


def test_a_sheet_is_chosen(tmp_path):
    pytest.importorskip("openpyxl")
    path, frame = tmp_path / "staff.xlsx", pandas.DataFrame({"pay": [1, 2], "y": [3, 4]})
    with pandas.ExcelWriter(path) as writer:
        pandas.DataFrame({"HR export": ["x"]}).to_excel(writer, sheet_name="Read me", index=False)
        frame.to_excel(writer, sheet_name="staff", index=False)
    message = r"sheet of .*got \['Read me', 'staff'\].*--read 'sheet_name=Read me'"
    with pytest.raises(ValueError, match=message):
        describe(path, "pay")
    assert [c.name for c in describe(path, read={"sheet_name": "staff"}).columns] == ["pay", "y"]
    frame.to_excel(path, index=False)
    assert describe(path, "pay").rows == 2
