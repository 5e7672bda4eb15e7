"""KDD-Cup-99 and Twitter buzz, two tables of the UCI repository, read from local files.

Each table is read from an NPZ file with prepared arrays `x` and `y`, or from the published file, of
which `default_rng(0).choice(rows, 100000, replace=False)` draws 100,000 rows.
Only KDD-Cup-99 can be downloaded. The checksum of the published Twitter file is not verified.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets._dataset import Raw, Source
from nrjax.datasets._files import (
    UNREADABLE,
    Arrays,
    PathLike,
    cached_arrays,
    data_folder,
    extra,
    first_present,
    read_npz,
)

KDD99_ROWS, TWITTER_ROWS = 494_021, 583_250  # rows in the published files
DRAWN = 100_000
KDD99_SHA256 = "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561"
KDD99_URL = "https://ndownloader.figshare.com/files"

_KDD99_GZ = "kddcup.data_10_percent.gz"
_FILES = {
    "kdd99": ("kdd99_100000.npz", _KDD99_GZ, "kddcup.data_10_percent"),
    "twitter": ("twitter_buzz_20000.npz", "Twitter.data"),
}
"""By table: the files that can hold it. The NPZ comes first, as it is faster to read."""
_HOW = {
    "kdd99": "nrjax data --fetch kdd99 downloads it (2.1 MB)",
    "twitter": f"put {' or '.join(_FILES['twitter'])} of the UCI repository into the data folder",
}
_COLUMNS = (
    *("duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land"),
    *("wrong_fragment", "urgent", "hot", "num_failed_logins", "logged_in", "num_compromised"),
    *("root_shell", "su_attempted", "num_root", "num_file_creations", "num_shells"),
    *("num_access_files", "num_outbound_cmds", "is_host_login", "is_guest_login", "count"),
    *("srv_count", "serror_rate", "srv_serror_rate", "rerror_rate", "srv_rerror_rate"),
    *("same_srv_rate", "diff_srv_rate", "srv_diff_host_rate", "dst_host_count"),
    *("dst_host_srv_count", "dst_host_same_srv_rate", "dst_host_diff_srv_rate"),
    *("dst_host_same_src_port_rate", "dst_host_srv_diff_host_rate", "dst_host_serror_rate"),
    *("dst_host_srv_serror_rate", "dst_host_rerror_rate", "dst_host_srv_rerror_rate"),
)
_NUMERIC = [name for name in _COLUMNS if name not in ("protocol_type", "service", "flag")]
_MEASURES = ("NCD", "AI", "AS(NA)", "BL", "NAC", "AS(NAC)", "CS", "AT", "NA", "ADL", "NAD")


def _read_kdd99(task: str, rows: int, data_dir: PathLike | None) -> Raw:
    """Return KDD-Cup-99: network connections, labelled 1 (attack) or -1 (normal)."""
    x, y = _first_rows("kdd99", rows, data_dir, 38, _draw_kdd99)
    check(np.isin(y, (-1, 1)), "y of kdd99", y, "-1 or 1")
    x[:, :3] = np.log1p(x[:, :3])
    names = (f"log1p({name})" if i < 3 else name for i, name in enumerate(_NUMERIC))
    return Raw(x, y, tuple(names))


def _draw_kdd99(path: Path) -> Arrays:
    names = [*_COLUMNS, "label"]
    options = {"names": names, "dtype": dict.fromkeys(_NUMERIC, np.float64), "index_col": False}
    drawn = _drawn_rows(path, (KDD99_ROWS, len(names)), **options)
    x = drawn[_NUMERIC].to_numpy(np.float32)
    return {"x": x, "y": np.where(drawn["label"] == "normal.", -1, 1).astype(np.int8)}


def _read_twitter(task: str, rows: int, data_dir: PathLike | None) -> Raw:
    """Return Twitter buzz: topics, with log1p of the number of discussions as the target.

    The 20,000 rows of the NPZ file differ from the rows drawn from the published file.
    """
    x, y = _first_rows("twitter", rows, data_dir, 77, _draw_twitter)
    check(~(y < 0), "y of twitter", y, "not negative")
    return Raw(x, np.log1p(y), tuple(f"{each}_{week}" for each in _MEASURES for week in range(7)))


def _draw_twitter(path: Path) -> Arrays:
    drawn = _drawn_rows(path, (TWITTER_ROWS, 78), dtype=np.float32).to_numpy()
    return {"x": drawn[:, :77], "y": drawn[:, 77]}


def _first_rows(
    name: str,
    rows: int,
    data_dir: PathLike | None,
    features: int,
    draw: Callable[[Path], Arrays],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `rows` of a table's features and target, both float64.

    `draw` makes the prepared table from the published file at the first use. Then it is cached.
    """
    npz, published, *_ = _FILES[name]
    path = first_present(data_dir, _FILES[name])
    if path is None:
        raise FileNotFoundError(
            f"The data set {name} was not found: put the file {npz}, or {published} of the UCI "
            f"repository, into {data_folder(data_dir)} ({_HOW[name]})."
        )
    # Raise the version 1 in the recipe when the prepared arrays change.
    arrays = (
        read_npz(path, ("x", "y")) if path.name == npz else cached_arrays(f"{name}-1", [path], draw)
    )
    x, y = arrays["x"], arrays["y"]
    shaped = x.ndim == 2 and x.shape[1] == features and y.shape == x.shape[:1]
    check(shaped, f"shapes of x and y in {path}", (x.shape, y.shape), f"(n, {features}) and (n,)")
    check(rows <= len(x), "rows", rows, f"at most {len(x)}, the rows of {path}")
    return x[:rows].astype(np.float64), y[:rows].astype(np.float64)


def _drawn_rows(path: Path, shape: tuple[int, int], **options: Any) -> Any:
    """Return 100,000 rows drawn from a published table, as a pandas data frame."""
    try:
        table = extra("pandas").read_csv(path, header=None, **options)
    except UNREADABLE as error:
        raise ValueError(f"{path} could not be read as CSV: {error}") from error
    gaps = int(table.isna().to_numpy().sum())
    hint = f"The file is cut short or another one: {gaps} values are missing."
    check(table.shape == shape and not gaps, f"shape of {path}", table.shape, str(shape), hint)
    return table.iloc[np.random.default_rng(0).choice(shape[0], DRAWN, replace=False)]


KDD99 = Source(
    tasks=("logistic",),
    features=38,
    how=_HOW["kdd99"],
    locate=partial(first_present, names=_FILES["kdd99"]),
    max_rows=lambda path: DRAWN,
    read=_read_kdd99,
)
TWITTER = Source(
    tasks=("ridge",),
    features=77,
    how=_HOW["twitter"],
    locate=partial(first_present, names=_FILES["twitter"]),
    max_rows=lambda path: 20_000 if path is None or path.suffix == ".npz" else DRAWN,
    read=_read_twitter,
)


def fetch_kdd99(data_dir: PathLike | None, base_url: str) -> Path:
    """Download the KDD-Cup-99 file into the data folder and return the file's path."""
    pooch = extra("pooch")
    folder, url = data_folder(data_dir), f"{base_url.rstrip('/')}/5976042"
    remedy = f"Put the file {_KDD99_GZ} (sha256 {KDD99_SHA256}) into {folder.absolute()}."
    try:
        return Path(pooch.retrieve(url, f"sha256:{KDD99_SHA256}", fname=_KDD99_GZ, path=folder))
    except OSError as error:  # errors of the network are OSErrors too
        reason = f"KDD-Cup-99 could not be downloaded from {url} ({error}). {remedy}"
        raise FileNotFoundError(reason) from error
    except ValueError as error:
        reason = f"The file at {url} is not KDD-Cup-99: wrong checksum, nothing kept. {remedy}"
        raise ValueError(reason) from error
