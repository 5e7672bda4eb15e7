"""Messages of the command name its options, and not the arguments of Python."""

import pytest

from nrjax.cli import main
from nrjax.cli.options import with_fractions
from nrjax.cli.wording import in_shell


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("leave_out must be a list (got ['leave_out']).", "--leave-out must be a list (got ['l"),
        (
            "State missing='drop' or missing={'age': VALUE} (in the shell --missing), or recode.",
            "State --missing drop or --missing age=VALUE, or recode.",
        ),
        ("write leave_out=('COLUMN',).", "write --leave-out COLUMN."),
        ("with rows_per_person=3, in the shell --rows-per-person 3.", "with --rows-per-person 3."),
        ("replace it (overwrite=True in Python, --overwrite in the command)", "it (--overwrite)"),
        ("replace the run (overwrite=True, --overwrite).", "replace the run (--overwrite)."),
        ("by --rows-per-person NUMBER (rows_per_person=).", "by --rows-per-person NUMBER."),
        ("--read encoding=cp1252 (read={'encoding': 'cp1252'}).", "--read encoding=cp1252."),
        (
            "bounds={'a': (LOW, HIGH), ...}, in the shell --bounds a=LOW:HIGH person=LOW:HIGH.",
            "--bounds a=LOW:HIGH person=LOW:HIGH.",
        ),
        ("bounds={'COLUMN': (LOW, HIGH)}.", "--bounds COLUMN=LOW:HIGH."),
        ("use read={'sep': ';'}.", "use --read 'sep=;'."),
        (
            "column 'leave_out' of /tmp/leave_out/leave_out.csv",
            "'leave_out' of /tmp/leave_out/",
        ),
        ("bounds of 'missing' must be numbers", "bounds of 'missing' must be numbers"),
        ("most_trials goes with until_se", "--most-trials goes with --until-se"),
    ],
)
def test_arguments_become_options(message, shown):
    """A replacement of every word is the planted fault: it changes names, paths and values."""
    assert shown in in_shell(message)
    assert "in the shell" not in in_shell(message)


def test_percentages_are_fractions():
    words = ["run", "--target-fraction", "20 %", "--held-out=.5%", "--error", "3 %", "5 %"]
    changed = ["run", "--target-fraction", "0.2", "--held-out=0.005", "--error", "3 %", "5 %"]
    assert with_fractions(words) == changed


def test_one_column_with_people_warns(tmp_path, capsys):
    rows = "\n".join(f"p{number % 20},{number}" for number in range(60))
    file = tmp_path / "pay.csv"
    file.write_text(f"patient,pay\n{rows}\n")
    call = ["choose", "mean", "--data", str(file), "--error", "1", "--bounds", "pay=0:60"]
    assert main([*call, "--column", "Pay"]) == 2
    error = capsys.readouterr().err
    assert "Did you mean 'pay'?" in error
    assert "'patient'" not in error
    assert main([*call[:-1], "pay=5:0", "--column", "pay"]) == 2
    error = capsys.readouterr().err
    assert "Warning: 'patient' may identify people who have several rows" in error
    assert "Only regressions can cover all rows of a person" in error
