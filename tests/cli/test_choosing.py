"""The command `nrjax choose`: questions from a file, and mistakes."""

import pytest

from nrjax.cli import main
from nrjax.cli.choosing import Choose
from nrjax.erm import default_regularisation


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pay.csv"
    path.write_text("pay,team,late,tip,club\n100,a,1,,\n250,b,0,2,\n300,a,0,4,x\n90,b,1,1,y\n")
    return str(path)


@pytest.mark.parametrize(
    ("question", "options", "name"),
    [
        ("mean", {"target": "pay", "bounds": ("pay=0:400",)}, "mean of 4 values"),
        ("sum", {"target": "pay", "bounds": ("pay=0:400",)}, "sum of 4 values"),
        ("count", {"target": "late"}, "count of 4 rows"),
        ("counts", {"target": "team"}, "counts of 2 groups"),
        ("histogram", {"target": "pay", "bins": (0.0, 200.0, 400.0)}, "histogram of 2 bins"),
    ],
)
def test_questions_about_a_column(table, question, options, name):
    command = Choose(question, error="3 %", data=table, **options)
    assert command._question().name == name


def test_a_regression_takes_rules_for_rows_and_people(table):
    bounds = ("pay=0:400", "team=a,b", "club=x,y")
    rules = {"leave_out": ("tip",), "missing": ("club=y",), "person": "late", "rows_per_person": 2}
    command = Choose("logistic", error="3 %", data=table, target="team", bounds=bounds, **rules)
    question = command._question()
    assert "4 rows of 4 features" in question.name
    assert {each.relation for each in question.mechanisms.values()} == {"replace, 2 rows"}


@pytest.mark.parametrize(
    ("question", "low", "high", "warning"),
    [
        ("mean", 0, 90, ""),
        ("mean", 400, 900, "Warning: no value of 'pay' lies from 400 to 900.\n"),
        ("histogram", 0, 90, ""),
        ("histogram", 400, 900, "Warning: no value of 'pay' lies from 400 to 900.\n"),
    ],
)
def test_bounds_outside_all_values_draw_a_warning(table, capsys, question, low, high, warning):
    ends = {"bins": (low, high)} if question == "histogram" else {"bounds": (f"pay={low}:{high}",)}
    Choose(question, error="3 %", data=table, target="pay", **ends)._question()
    assert capsys.readouterr().err == warning


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mean", "--error", "1"], "data must be the path of a file"),
        (["mean", "--error", "1", "--data", "TABLE"], "target must be a column of"),
        (["mean", "--error", "1", "--data", "TABLE", "--column", "pay"], "bounds must be"),
        (["mean", "--error", "1", "--data", "TABLE", "--column", "team"], "text in 4 of 4"),
        (["mean", "--error", "1", "--data", "TABLE", "--column", "tip"], "1 missing of 4"),
        (["counts", "--error", "1", "--data", "TABLE", "--column", "club"], "2 missing of 4"),
        (["count", "--error", "1", "--data", "TABLE", "--column", "tip"], "column 'tip' of"),
        (["histogram", "--error", "1", "--data", "TABLE", "--column", "pay"], "--bins 0 50 100"),
        (["count", "--error", "x", "--data", "TABLE", "--column", "late"], "error must be"),
        (["mean", "--error", "1", "--person", "team"], "person must be left out, except for a reg"),
        (["count", "--error", "1", "--missing", "drop"], "missing must be left out, except for a"),
    ],
)
def test_mistakes(table, capsys, arguments, message):
    given = [table if each == "TABLE" else each for each in arguments]
    assert main(["choose", *given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_a_choice_is_printed_and_written(table, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--column", "late", "--error", "2", "--trials", "256", "--out", str(out)]
    main(["choose", "count", "--data", table, *options])
    printed = capsys.readouterr().out
    assert "count of 4 rows: error at most 2 in 90% of runs" in printed
    assert "discrete-laplace-once" in printed
    assert (out / "choice.png").stat().st_size > 10_000


@pytest.mark.filterwarnings("ignore:.* lie outside its bounds")
def test_a_regression_on_a_file_prints_what_was_done_with_the_table(tmp_path, capsys):
    """The target has the same option as in `nrjax run`, and warnings have no path."""
    path = tmp_path / "left.csv"
    path.write_text("age,left\n" + "".join(f"{n},{'no' if n < 30 else 'yes'}\n" for n in range(60)))
    command = Choose("logistic", error="3 %", data=str(path), target="left", bounds=("age=0:58",))
    question = command._question()
    assert question.name == "logistic regression on 60 rows of 2 features"
    first, second = capsys.readouterr().out.splitlines()
    assert "age [0, 58] (1 clipped)" in first
    assert second.endswith("which no epsilon covers: the labels of left.")
    chosen = question.mechanisms["laplace"].utility
    assert chosen.regularisation == pytest.approx(default_regularisation("logistic", 60))
    table = ["choose", "logistic", "--error", "0", "--data", str(path), "--bounds", "age=0:60"]
    assert main(table) == 2
    assert "Name the column to predict (--target COLUMN)" in (capsys.readouterr().err)
    assert main([*table, "--target", "left"]) == 2
    assert "error must be" in capsys.readouterr().err
