"""Files and containers: each is read as what it is, or refused in a sentence."""

import bz2
import contextlib
import datetime
import gzip
import lzma
import sys
import tracemalloc
import zipfile
from collections import namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from nrjax.datasets import describe, from_arrays, from_file, from_frame, load

pandas = pytest.importorskip("pandas")

BOUNDS = {"age": (18, 90), "pay": (0, 5), "left": ["no", "yes"]}
ROWS = [(20, 1.5, "no"), (30, 2.5, "yes"), (40, 3.5, "no"), (50, 4.5, "yes")]
FRAME = pandas.DataFrame(ROWS, columns=["age", "pay", "left"])
PLAIN = FRAME.to_csv(index=False)
EXPECTED = from_frame(FRAME, "left", bounds=BOUNDS, task="logistic")


def written(tmp_path, content, name="own.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def zipped(tmp_path):
    with zipfile.ZipFile(tmp_path / "own.csv.zip", "w") as archive:
        archive.writestr("own.csv", PLAIN)
    return (tmp_path / "own.csv.zip").read_bytes()


def check_same(data):
    np.testing.assert_array_equal(data.x, EXPECTED.x)
    np.testing.assert_array_equal(data.y, EXPECTED.y)


SPLIT = FRAME.to_csv(index=False, sep=";")
COMMA = FRAME.to_csv(index=False, sep=";", decimal=",")
R_TABLE = (
    '"age" "pay" "left"\n"1" 20 1.5 "no"\n"2" 30 2.5 "yes"\n"3" 40 3.5 "no"\n"4" 50 4.5 "yes"\n'
)
R_COMMA = "age,pay,left\nr1,20,1.5,no\nr2,30,2.5,yes\nr3,40,3.5,no\nr4,50,4.5,yes\n"


@pytest.mark.parametrize(
    ("name", "content", "read", "said"),
    [
        ("own.csv", PLAIN, {}, ""),
        ("OWN.CSV", PLAIN.replace("\n", "\r\n"), {}, ""),
        ("own.csv", "\ufeff" + PLAIN, {}, ""),
        ("own.csv", SPLIT, {}, "separated by ';'"),
        ("own.csv", SPLIT, {"sep": ";"}, ""),
        ("own.csv", COMMA, {"decimal": ","}, "separated by ';'"),
        ("own.tsv", FRAME.to_csv(index=False, sep="\t"), {}, "separated by tabs"),
        ("own.txt", FRAME.to_csv(index=False, sep="|"), {}, "separated by '|'"),
        ("own.txt", FRAME.to_string(index=False), {}, "separated by blanks"),
        ("own.txt", R_TABLE, {}, "first field of each row is taken as its name and left out"),
        ("own.csv", R_COMMA, {}, "first field of each row is taken as its name and left out"),
        ("own.csv", FRAME.to_csv(), {}, "the first column, row names without a heading"),
        ("own.csv", PLAIN.replace("\n", ",\n"), {}, "empty columns without a name"),
        ("own.csv", "# of 2020\n" + PLAIN, {"comment": "#"}, ""),
        ("own.csv", "of; 2020\n" + PLAIN, {"skiprows": 1}, ""),
        ("own.csv", COMMA.encode("utf-16"), {"decimal": ","}, "in UTF-16"),
        ("own.csv", PLAIN.encode("utf-32"), {}, ""),
        ("own.csv.gz", gzip.compress(SPLIT.encode(), mtime=0), {}, "separated by ';'"),
        ("own.tsv.bz2", bz2.compress(SPLIT.encode()), {}, "separated by ';'"),
        ("own.csv.xz", lzma.compress(PLAIN.encode()), {}, ""),
        ("own.csv.zip", zipped, {}, ""),
    ],
)
def test_text(tmp_path, name, content, read, said):
    content = content(tmp_path) if callable(content) else content
    data = from_file(written(tmp_path, content, name), "left", bounds=BOUNDS, read=read)
    check_same(data)
    first = data.summary.split("\n")[0]
    assert first.startswith(f"{name}: " if not said else f"{name} (")
    assert said in first


SHIFTED = "age,pay,left\n20,1000,no,ok\n30,2000,yes,check\n40,1500,no,ok\n50,3000,yes,check\n"


@pytest.mark.parametrize(
    ("content", "read", "message"),
    [
        (SHIFTED, {}, r"4 fields, and a header of 3 names'\)\. Each row needs one field per name"),
        (PLAIN.replace("no\n", "no,\n").replace("yes\n", "yes,\n"), {}, "ends in a separator"),
        ("left,age,pay\nno,20,1\nyes,30\nno,40,1\nyes,50,1\n", {}, "1 with fewer fields"),
        ("left;age;pay\nno;20;1\nyes;30\n;40;1\nyes;50;1\n", {}, "1 with fewer fields"),
        ("pay\n1,5\n2,5\n", {}, r"comma is the decimal mark: read=\{'sep': ';', 'decimal'"),
        ("age,pay,left\n1,2,no\n1,2,no,4\n", {}, "could not be read as CSV: .*line 3, saw 4"),
        ("age,left;x\n20,no;1\n30,yes;2\n", {}, "clear .*',' or ';', which fit alike.*--read sep="),
        ("# of 2020\n" + PLAIN, {}, "--read comment='#'"),
        ("ä,left\n1,no\n".encode("latin-1"), {}, "--read encoding=latin-1"),
        (PLAIN.encode("utf-16-le"), {}, "--read encoding=utf-16"),
        ("age,age,left\n1,2,no\n", {}, r"without repeated names \(got \['age'\]"),
        ("a;b;a\n1;2;3\n", {}, r"without repeated names \(got \['a'\]"),
        (PLAIN, {"decimale": ","}, "options of pandas.read_csv .*Did you mean 'decimal'"),
        (PLAIN, {"dtype": {"left": "int"}}, "as CSV: cells do not suit the options of `read`$"),
        (PLAIN, {"chunksize": 2}, "options of pandas.read_csv"),
        (b"\x1f\x8b", {"sep": ","}, "could not be read"),
    ],
)
def test_bad_text(tmp_path, content, read, message):
    with pytest.raises(ValueError, match=message):
        from_file(written(tmp_path, content), "left", bounds={"age": (0, 5000)}, read=read)


def test_a_damaged_archive_is_named(tmp_path):
    for name in ("own.csv.gz", "own.csv.zip", "own.csv.xz"):
        with pytest.raises(ValueError, match=f"{name} could not be decompressed"):
            from_file(written(tmp_path, "no archive", name), "left")


def test_the_separator_of_many_tables(tmp_path):
    """Words with commas, quoted separators, and numbers in any format do not mislead."""
    rng, wrong, read = np.random.default_rng(0), [], 0
    words = [
        "Bern, Stadt",
        "a;b",
        "12:30",
        "two words",
        'say "x"',
        "1|2",
        "",
        "3,5",
        "-7",
        "1.000,5",
    ]
    names = ["name", "name, given", "size (m; km)", "a b", "when|where"]
    for number in range(100):
        separator = ",;\t|"[number % 4]
        columns = [f"{rng.choice(names)} {place}" for place in range(rng.integers(2, 7))]
        cells = [rng.choice(words, len(columns)) for _ in range(rng.integers(3, 30))]
        cells = [["x", *row[1:-1], "y"] for row in cells]  # never short
        frame = pandas.DataFrame(cells, columns=columns)
        path = tmp_path / "own.txt"
        frame.to_csv(path, index=False, sep=separator)
        with contextlib.suppress(ValueError):  # it fits by two, which is loud
            wrong += [number] if len(describe(path).columns) != len(columns) else []
            read += 1
    assert not wrong
    assert read >= 90


@pytest.mark.parametrize("suffix", ["dta", "parquet", "feather", "xlsx", "sav"])
def test_files_of_other_programs(tmp_path, suffix):
    path = tmp_path / f"own.{suffix}"
    if suffix == "dta":
        FRAME.to_stata(path, write_index=False)
    elif suffix == "sav":
        pytest.importorskip("pyreadstat").write_sav(FRAME, str(path))
    elif suffix == "xlsx":
        pytest.importorskip("openpyxl")
        FRAME.to_excel(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        getattr(FRAME, f"to_{suffix}")(path)
    check_same(from_file(path, "left", bounds=BOUNDS))
    check_same(load(path, "logistic", target="left", bounds=BOUNDS))


@pytest.mark.parametrize(
    ("name", "package"),
    [("own.parquet", "pyarrow"), ("own.xlsx", "openpyxl"), ("own.sav", "pyreadstat")],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, package):
    for module in (package, "fastparquet"):
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    with pytest.raises(ModuleNotFoundError, match=rf"{name} needs .*: pip install {package}"):
        from_file(path, "left")


def test_a_suffix_that_nothing_reads_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"\.parquet, .*got .*own\.rds.*from_frame\(frame, target\)"
    ):
        from_file(written(tmp_path, "x", "own.rds"), "left")


def arrow(kind):
    table = pytest.importorskip("pyarrow").table(FRAME)
    return table if kind == "table" else table.to_batches()[0]


Row = namedtuple("Row", "age pay left")
CONTAINERS = {
    "records": FRAME.to_dict("records"),
    "lists": FRAME.to_dict("list"),
    "array": np.array(ROWS, [("age", int), ("pay", float), ("left", "U3")]),
    "recarray": FRAME.to_records(index=False),
    "decimals": FRAME.assign(pay=[Decimal(str(pay)) for pay in FRAME.pay]),
    "fractions": FRAME.assign(pay=[Fraction(pay) for pay in FRAME.pay]),
    "categories": FRAME.astype({"left": "category"}),
    "table": lambda: arrow("table"),
    "batch": lambda: arrow("batch"),
    "polars": lambda: pytest.importorskip("polars").DataFrame(FRAME.to_dict("list")),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_containers(kind):
    frame = CONTAINERS[kind]
    check_same(from_frame(frame() if callable(frame) else frame, "left", bounds=BOUNDS))


class Lazy:
    """A stand-in for a lazy frame of polars or Dask."""

    columns = ("age", "left")

    def collect(self):
        return FRAME


SECRET = pandas.Series(range(1000, 3000))


@pytest.mark.parametrize(
    ("frame", "hint"),
    [
        ("own.csv", r"For the path of a file: from_file\(path, target\)"),
        (Lazy(), r"It is not computed yet: from_frame\(frame\.collect\(\), target\)"),
        (SECRET, r"For arrays: from_arrays\(x, y, names"),
        (SECRET.to_numpy().reshape(-1, 2), "For arrays"),
        ((SECRET.to_numpy().reshape(-1, 2), SECRET), "For arrays"),
        ([*map(Row._make, ROWS)], "got 'list'"),
        (pandas.DataFrame({1: [1], "1": [2], "left": [3]}), r"repeated names \(got \['1'\]"),
        ({1: [1], "1": [2], "left": [3]}, r"repeated names \(got \['1'\]"),
        ([{"age": 20, "left": "no"}, {"left": "yes"}], r"missing values \(got \['age'\]"),
    ],
)
def test_what_is_no_table(frame, hint):
    with pytest.raises(ValueError, match=hint) as error:
        from_frame(frame, "left", bounds={"age": (18, 90)})
    assert len(str(error.value)) < 400
    assert "1234" not in str(error.value)


def test_a_lazy_frame_of_polars_is_refused():
    frame = pytest.importorskip("polars").DataFrame({"age": [1]}).lazy()
    with pytest.raises(ValueError, match=r"from_frame\(frame\.collect\(\), target\)"):
        from_frame(frame, "age")


def test_arrays():
    x, y, names = FRAME[["age", "pay"]], FRAME.left, ["age", "pay"]
    for features in (x, x.to_numpy(), x.to_numpy().tolist(), x.to_dict("list")):
        data = from_arrays(features, y, names=names, bounds=BOUNDS, target="left", task="logistic")
        check_same(data)
        assert data.summary == EXPECTED.summary
    bounds = {"x0": (18, 90), "x1": (0, 5)}
    assert from_arrays(x.to_numpy(), y, bounds=bounds).feature_names == ("x0", "x1", "intercept")
    for options, message in (
        ({"names": ["age"]}, "names must be 2, one per feature"),
        ({"names": ["age", "age"]}, "names must be without repeated names"),
        ({"target": "x0"}, "target must be no name of a feature"),
    ):
        with pytest.raises(ValueError, match=message):
            from_arrays(x.to_numpy(), y, bounds=bounds, **options)
    with pytest.raises(ValueError, match=r"shape of x must be \(n, d\)"):
        from_arrays(y, y)
    with pytest.raises(ValueError, match="of one dimension and of equal length"):
        from_arrays(x.to_numpy(), y[:3], bounds=bounds)


def test_a_listed_word_is_a_category_by_any_separator(tmp_path):
    text = "age;country;left\n20;NA;no\n30;ZA;yes\n40;NA;no\n50;DE;yes\n"
    bounds = {"age": (18, 90), "country": ["NA", "ZA", "DE"]}
    for read in ({}, {"sep": ";"}, {"sep": ";", "na_values": ["-"]}):
        data = from_file(written(tmp_path, text), "left", bounds=bounds, read=read)
        assert (data.x[:, 1] > 0).tolist() == [True, False, True, False]


def test_dates_stay_dates_in_a_description(tmp_path):
    days = [datetime.date(2020, 1, day) for day in range(1, 5)]
    kinds = [describe({"day": column}).columns[0] for column in (days, [*map(str, days)])]
    assert [kind.kind for kind in kinds] == ["dates", "text"]
    assert kinds[1].looks_like == "dates"


def test_long_comments_cost_the_memory_of_their_values(tmp_path):
    """The planted fault is an array of fixed width, of 360 MB."""
    rng = np.random.default_rng(0)
    notes = [f"note {number} on the visit" for number in rng.permutation(3000)]
    notes[7] = "x" * 30_000
    frame = FRAME.iloc[rng.integers(0, 4, 3000)].assign(note=notes)
    path = written(tmp_path, frame.to_csv(index=False))

    def peak(function):
        tracemalloc.start()
        function()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most / 2**20

    def refused():
        with pytest.raises(ValueError, match="3000 values"):
            from_file(path, "left", bounds=BOUNDS)

    assert peak(lambda: np.array(notes)) > 300
    assert peak(lambda: describe(path, "left")) < 30
    assert peak(refused) < 30
