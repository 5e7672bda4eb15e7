"""KDD-Cup-99 network connections, 10 percent: attack (1) or normal (-1).

From a local folder, or downloaded on request. The whole file (494,021 rows) and the prepared draw
of 100,000 rows (`x`, `y` in an NPZ) give the same rows.
"""

from pathlib import Path

import numpy as np

from nrjax.datasets._dataset import Raw, first_rows
from nrjax.datasets._files import Arrays, PathLike, data_folder, drawn_rows, extra, first_present

TASKS = ("logistic",)
WHOLE = 494_021
ROWS = 100_000
FEATURES = 38
SHA256 = "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561"
BASE_URL = "https://ndownloader.figshare.com/files"
HOW = "nrjax data --fetch kdd99 downloads it (2.1 MB)"

_NPZ = "kdd99_100000.npz"
_GZ = "kddcup.data_10_percent.gz"
_FILES = (_NPZ, _GZ, "kddcup.data_10_percent")
_RECIPE = "kdd99-1"  # raise the number when the prepared arrays change
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
_NUMERIC = tuple(name for name in _COLUMNS if name not in ("protocol_type", "service", "flag"))


def where(data_dir: PathLike | None = None) -> Path | None:
    """The file that would be read, or None. The NPZ comes first, being the faster to read."""
    return first_present(data_dir, _FILES)


def most_rows(path: Path | None) -> int:
    """Most rows that `read` gives."""
    return ROWS


def read(task: str, rows: int, data_dir: PathLike | None = None) -> Raw:
    """The first `rows` of the draw of 100,000 connections, not yet scaled.

    The draw is `default_rng(0).choice(494021, 100000, replace=False)`. Features: the 38 numeric
    columns of 41, with log1p of duration, bytes sent and bytes received.

    A `FileNotFoundError` says which file to put where; a `ValueError`, that it gives fewer rows, or
    is not what its name says.
    """
    path = where(data_dir)
    if path is None:
        raise FileNotFoundError(
            f"The data set kdd99 was not found: put the file {_GZ} (or {_NPZ}) into "
            f"{data_folder(data_dir)}, or download it with nrjax data --fetch kdd99."
        )
    labels = (lambda y: np.isin(y, (-1, 1)), "of -1 and 1")
    x, y = first_rows(path, rows, FEATURES, _RECIPE, _draw, labels)
    x[:, :3] = np.log1p(x[:, :3])
    names = tuple(f"log1p({name})" if i < 3 else name for i, name in enumerate(_NUMERIC))
    return Raw(x, y, names)


def fetch(data_dir: PathLike | None = None, *, base_url: str = BASE_URL) -> Path:
    """Download the 10 percent file (2.1 MB) into the data folder and return its path.

    Nothing happens if it is there already with the right checksum; a file of that name with
    another checksum is replaced. The file appears only when complete and checked.

    Raises:
        FileNotFoundError: it could not be downloaded; the message says which file to put where.
        ValueError: what came has another checksum; the folder is left as it was.
    """
    pooch = extra("pooch")
    folder, url = data_folder(data_dir), f"{base_url.rstrip('/')}/5976042"
    remedy = f"put the file {_GZ} (sha256 {SHA256}) into {folder.absolute()}."
    try:
        return Path(pooch.retrieve(url, f"sha256:{SHA256}", fname=_GZ, path=folder))
    except OSError as error:  # the network's errors among them
        raise FileNotFoundError(
            f"KDD-Cup-99 could not be downloaded from {url} ({error}): {remedy}"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"What {url} sent is not the KDD-Cup-99 file (wrong checksum, nothing kept): {remedy}"
        ) from error


def _draw(path: Path) -> Arrays:
    """The drawn rows of the whole file: `x` (100000, 38) float32 as it stands there, `y` int8."""
    names = [*_COLUMNS, "label"]
    kinds = dict.fromkeys(_NUMERIC, np.float64)
    shape = (WHOLE, len(names))
    drawn = drawn_rows(path, "KDD-Cup-99", shape, ROWS, names=names, dtype=kinds, index_col=False)
    return {
        "x": drawn[list(_NUMERIC)].to_numpy(np.float32),
        "y": np.where(drawn["label"] == "normal.", -1, 1).astype(np.int8),
    }
