"""The command `nrjax data` on a table, and the options of `run` and `choose` that it prints."""

import re

import pytest

from nrjax.cli import main
from nrjax.cli.choosing import Choose
from nrjax.papers._settings import parsed_read
from nrjax.papers.regression import Settings, study

TEXT = "pay;late;note;club\n1,5;a;x;NA\n2,5;b;;B\n9;a;z;C\n4,5;a;x;B\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "own table.csv"
    file.write_text(TEXT)
    return str(file)


def test_a_table_is_described(path, capsys):
    assert main(["data", path, "--target", "pay"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^own table.csv \(separated by ';'\): 4 rows, 4 columns$", printed, re.M)
    assert "'pay' is text: 3 cells are no plain number. Add --read decimal=, for" in printed
    line = f"    nrjax run --data '{path}' --target pay --read decimal=, --missing drop --bounds"
    assert f"{line} pay=LOW:HIGH late=CATEGORIES note=CATEGORIES club=CATEGORIES" in printed
    for value in ("2,5", "B\n"):
        assert value not in printed


def test_the_options_are_those_of_a_run(path, capsys):
    options = ["--target", "pay", "--read", "decimal=,", "--bounds", "pay=0:10"]
    options += ["--leave-out", "note", "club", "--bounds", "late=a,b"]
    assert main(["data", path, *options]) == 0
    expected = "ridge regression of pay [0, 10] on late (2 categories), intercept ("
    assert expected in capsys.readouterr().out


def test_a_template_does_not_replace_a_file(path, tmp_path, capsys):
    bounds = str(tmp_path / "bounds.toml")
    assert main(["data", path, "--write-bounds", bounds]) == 0
    assert main(["data", path, "--write-bounds", bounds]) == 2
    printed = capsys.readouterr()
    assert "--write-bounds must be a file that does not exist yet" in printed.err
    assert printed.out.count("4 rows, 4 columns") == 1  # the second call fails at once


def test_people_are_covered_by_the_printed_line(tmp_path, capsys):
    """With --person, the line has both options, and the stated number is checked."""
    file = tmp_path / "visits.csv"
    file.write_text("patient,age,left\n" + "u,20,no\nu,21,yes\nv,40,no\n" * 20)
    options = ["data", str(file), "--target", "left", "--person", "patient"]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert "* state the largest number of rows of a person" in printed
    assert "--target left --person patient --rows-per-person NUMBER --bounds age=LOW" in printed
    assert main([*options, "--rows-per-person", "40"]) == 0
    printed = capsys.readouterr().out
    assert "No problem was found." in printed
    assert "--person patient --rows-per-person 40 --bounds age=LOW:HIGH left=LABELS" in printed
    bounds = ["--bounds", "age=0:90", "left=no,yes"]
    for more in ([], bounds):
        assert main([*options, "--rows-per-person", "3", *more]) == 0
        printed = capsys.readouterr().out
        assert printed.count("--rows-per-person must be at least 40 for visits.csv") == 1
    assert main([*options, "--rows-per-person", "40", *bounds]) == 0
    assert "at most 40 for each patient" in capsys.readouterr().out
    assert main([*options[:-1], "patients"]) == 2
    assert "Did you mean 'patient'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "pay"], "target must be left out without a table"),
        (["gone.csv"], "There is no file gone.csv"),
        (["TABLE", "--target", "gone"], "target must be a column of own table.csv"),
        (["TABLE", "--read", "decimal"], "read must be of the form OPTION=VALUE"),
        (["TABLE", "--read", "decimel=,"], "Did you mean 'decimal'"),
        (["TWICE"], "must be without repeated names (got ['age'])"),
        (["study.py"], "data must be the path of a file of a table: .csv, .tsv"),
    ],
)
def test_mistakes(path, tmp_path, capsys, arguments, message):
    twice = tmp_path / "twice.csv"
    twice.write_text("age,income,age\n20,1,30\n")
    names = {"TABLE": path, "TWICE": str(twice)}
    assert main(["data", *(names.get(each, each) for each in arguments)]) == 2
    assert message in capsys.readouterr().err
    choice = ["choose", "mean", "--error", "1", "--data", str(twice), "--target", "age"]
    assert main([*choice, "--bounds", "age=0:90"]) == 2
    assert "without repeated names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sep=;", ";"),
        ("sep=\\t", "\t"),
        ("decimal=,", ","),
        ("thousands=.", "."),
        ("encoding=latin-1", "latin-1"),
        ("skiprows=3", 3),
        ("header=None", None),
        ("na_values=?,-99,missing", ["?", -99, "missing"]),
        ("usecols=a,b", ["a", "b"]),
        ("usecols=['a, b', 'c']", ["a, b", "c"]),
        ("comment=#", "#"),
        ("quotechar='", "'"),
        ("dtype={'a': 'str'}", {"a": "str"}),
    ],
)
def test_read_options(text, expected):
    assert list(parsed_read([text]).values()) == [expected]


@pytest.mark.filterwarnings("ignore:.* none of its 2 categories")
def test_a_run_and_a_choice_read_the_same(path, tmp_path):
    read = ("sep=;", "decimal=,")
    bounds = ("pay=0:10", "late=a,b", "note=x,z", "club=NA,B,C")
    with pytest.raises(ValueError, match=r"missing values \(got \['note'\]\)"):
        study(Settings(data=path, target="pay", bounds=bounds, read=read, test=("public",)))
    file = tmp_path / "full.csv"
    file.write_text(TEXT.replace("b;;", "b;y;"))
    for data, more in ((str(file), {"read": read}), (str(file), {"read": read[1:]})):
        made = study(Settings(data=data, target="pay", bounds=bounds, test=("public",), **more))
        assert made.cases
        question = Choose("mean", error="3 %", data=data, target="pay", bounds=bounds[:1], **more)
        assert question._question().name == "mean of 4 values"


def test_column_is_another_name_of_target(path, capsys):
    options = ["--data", path, "--error", "1", "--read", "decimal=,"]
    for name in ("--column", "--target"):
        assert main(["choose", "mean", *options, name, "pay"]) == 2
        assert "the bounds of 'pay'" in capsys.readouterr().err
