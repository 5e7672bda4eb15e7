"""Files of bounds: names and categories of any text, placeholders, mistakes."""

import warnings

import pytest

from nrjax.cli import main
from nrjax.datasets import PrivacyLeakWarning, describe, from_file, from_frame, load, read_bounds
from nrjax.papers._settings import stated_bounds
from tests.own_tables import filled

pandas = pytest.importorskip("pandas")

FRAME = {
    "a=b": [1.0, 2.0, 3.0, 4.0],
    "-slot": [10, 20, 30, 40],
    'quote "x" \\ é\t': [0.5, 0.1, 0.2, 0.3],
    "stage": ["Adult, 1 Egg Stage", "Adult, 2", "Adult, 2", "other"],
    "code": [1, 2, 9, 1],
    "left": ["no", "yes", "no", "yes"],
}
BOUNDS = {
    "a=b": (0, 5),
    "-slot": (0, 50),
    'quote "x" \\ é\t': (0, 1),
    "stage": ["Adult, 1 Egg Stage", "Adult, 2"],
    "code": [1, 2],
    "left": ["yes", "no"],
}
pytestmark = pytest.mark.filterwarnings("ignore:.* values of '(stage|code)' are none of")


def test_a_template_is_filled_in_and_read(tmp_path):
    path = tmp_path / "bounds.toml"
    description = describe(FRAME, "left")
    path.write_text(description.template, encoding="utf-8")
    with pytest.raises(ValueError, match=r"lines 7, 8, 9, 10, 11, 12 of .*must be filled in"):
        read_bounds(path)
    path.write_text(filled(description.template, BOUNDS.get), encoding="utf-8")
    assert read_bounds(path) == BOUNDS
    data = from_frame(FRAME, "left", bounds=path)
    expected = from_frame(FRAME, "left", bounds=BOUNDS)
    assert data.remarks == expected.remarks
    assert "stage=Adult, 1 Egg Stage" in data.feature_names
    table = tmp_path / "own.csv"
    pandas.DataFrame(FRAME).to_csv(table, index=False)
    assert from_file(table, "left", bounds=str(path)).feature_names == expected.feature_names
    assert (
        load(table, "logistic", target="left", bounds=path).feature_names == expected.feature_names
    )


def test_json(tmp_path):
    path = tmp_path / "bounds.json"
    path.write_text(
        '{"age": {"low": 0, "high": 5}, "day": {"low": "2020-01-01", "high": "2021-01-01"}}'
    )
    assert read_bounds(path) == {"age": (0, 5), "day": ("2020-01-01", "2021-01-01")}
    path.write_text('{"age": [1], "age": [2]}')
    with pytest.raises(ValueError, match="without repeats"):
        read_bounds(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day = { low = 2020-01-01, high = 2020-12-31 }", {"day": ("2020-01-01", "2020-12-31")}),
        ("code = [1, 2]", {"code": [1, 2]}),
        ("vip = [true, false]", {"vip": [True, False]}),
        ("[age]\nlow = 1_000\nhigh = 2e3", {"age": (1000, 2000.0)}),
    ],
)
def test_values(tmp_path, text, expected):
    path = tmp_path / "bounds.toml"
    path.write_text(text)
    assert read_bounds(path) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age = [18 90]", r"bounds\.toml could not be read: .*line 1"),
        ("age = { low = 18 }", "bounds of 'age' in .* must be a range or a list"),
        ("age = 18", "bounds of 'age' in .* must be a range or a list"),
        ("age = []", "bounds of 'age' in .* must be a range or a list"),
        ("age = { low = LOW, high = 3 }", "lines 1 of .* must be filled in"),
    ],
)
def test_mistakes(tmp_path, text, message):
    path = tmp_path / "bounds.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_bounds(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*gone\.toml"):
        from_frame(FRAME, "left", bounds=tmp_path / "gone.toml")
    with pytest.raises(ValueError, match=r"bounds must be the path of a \.toml or \.json file"):
        from_frame(FRAME, "left", bounds=tmp_path / "bounds.txt")


def test_the_shell_adds_to_the_file(tmp_path):
    path = tmp_path / "bounds.toml"
    path.write_text("age = { low = 0, high = 5 }")
    assert stated_bounds(("pay=0:1",), path) == {"age": (0, 5), "pay": (0, 1)}
    for texts, message in ((("age=0:1",), "no bounds of"), (("data",), "left out with a file")):
        with pytest.raises(ValueError, match=message):
            stated_bounds(texts, path)


def test_bounds_from_the_data_draw_a_warning_of_their_own(tmp_path):
    path = tmp_path / "own.csv"
    pandas.DataFrame(FRAME).to_csv(path, index=False)
    doors = {
        "frame": lambda: from_frame(FRAME, "left", bounds="data"),
        "file": lambda: from_file(path, "left", bounds="data"),
        "load": lambda: load(path, "logistic", target="left", bounds="data"),
    }
    for name, door in doors.items():
        with pytest.warns(PrivacyLeakWarning, match="taken from the data") as record:
            door()
        assert record[0].filename == __file__, name
        with warnings.catch_warnings():
            warnings.simplefilter("error", PrivacyLeakWarning)
            with pytest.raises(PrivacyLeakWarning):
                door()


def test_the_shell_reads_a_file_of_bounds(tmp_path, capsys):
    table, bounds = tmp_path / "own.csv", tmp_path / "bounds.toml"
    pandas.DataFrame(FRAME).to_csv(table, index=False)
    assert main(["data", str(table), "--target", "left", "--write-bounds", str(bounds)]) == 0
    assert "--bounds-file bounds.toml" in capsys.readouterr().out
    bounds.write_text(filled(bounds.read_text("utf-8"), BOUNDS.get), "utf-8")
    assert main(["data", str(table), "--target", "left", "--bounds-file", str(bounds)]) == 0
    assert "left (yes is -1, no is 1) on a=b [0, 5], -slot [0, 50]" in capsys.readouterr().out
