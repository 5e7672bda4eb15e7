"""KDD-99: one set of rows from every form of the file, and the download."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import threading

import numpy as np
import pytest

from nrjax.datasets import fetch, kddcup, load

GZ = "kddcup.data_10_percent.gz"
pytestmark = [
    pytest.mark.usefixtures("quiet_sockets"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def line(rng):
    numbers = [str(v) for v in rng.integers(0, 2_000_000_000, 38)]
    label = rng.choice(["normal.", "smurf.", "neptune."])
    return ",".join([numbers[0], "tcp", "http", "SF", *numbers[1:], label]) + "\n"


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A made-up file of 300 rows of which 200 are drawn: its folder and its lines."""
    monkeypatch.setattr(kddcup, "WHOLE", 300)
    monkeypatch.setattr(kddcup, "ROWS", 200)
    rng = np.random.default_rng(5)
    lines = [line(rng) for _ in range(300)]
    folder = tmp_path / "data"
    folder.mkdir()
    with gzip.open(folder / GZ, "wt") as file:
        file.writelines(lines)
    return folder, lines


def test_rows_are_those_of_a_plain_reading(small, tmp_path):
    folder, lines = small
    drawn = [lines[i].split(",") for i in np.random.default_rng(0).choice(300, 200, replace=False)]
    x = np.array([[float(v) for v in [row[0], *row[4:41]]] for row in drawn[:150]])
    x = x.astype(np.float32).astype(np.float64)
    x[:, :3] = np.log1p(x[:, :3])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    labels = [-1 if row[41] == "normal.\n" else 1 for row in drawn[:150]]
    (tmp_path / "kddcup.data_10_percent").write_text("".join(lines))  # the same, unpacked
    for place in (folder, tmp_path):
        data = load("kdd99", "logistic", rows=150, data_dir=place)
        np.testing.assert_allclose(data.x, x, rtol=1e-13)
        np.testing.assert_array_equal(data.y, labels)
    logged = ("log1p(duration)", "log1p(src_bytes)", "log1p(dst_bytes)")
    assert data.feature_names[:4] == (*logged, "land")
    assert len(data.feature_names) == 38


@pytest.mark.parametrize("damage", ["short", "truncated", "text", "columns"])
def test_a_damaged_file_is_refused_and_nothing_is_written_to_the_folder(small, damage):
    folder, lines = small
    content = gzip.compress("".join(lines).encode())
    content = {
        "short": gzip.compress("".join(lines[:250]).encode()),
        "truncated": content[: len(content) // 2],
        "text": b"<html>try later</html>",
        "columns": gzip.compress("".join(row[row.index(",") + 1 :] for row in lines).encode()),
    }[damage]
    (folder / GZ).write_bytes(content)
    with pytest.raises(ValueError, match=r"KDD-Cup-99 file|cut short or another one"):
        load("kdd99", "logistic", rows=10, data_dir=folder)
    assert [path.name for path in folder.iterdir()] == [GZ]


@pytest.mark.long
def test_whole_file_and_npz_give_the_same_rows(papers_data, papers_file, tmp_path):
    papers_file(GZ)
    (tmp_path / GZ).symlink_to(papers_data / GZ)
    assert hashlib.sha256((tmp_path / GZ).read_bytes()).hexdigest() == kddcup.SHA256
    whole = load("kdd99", "logistic", rows=100_000, data_dir=tmp_path)
    npz = load("kdd99", "logistic", rows=100_000, data_dir=papers_data)
    assert whole.x.shape == (100_000, 38)
    np.testing.assert_array_equal(whole.x, npz.x)
    np.testing.assert_array_equal(whole.y, npz.y)


def test_optimum_of_the_paper(papers_data, optimum):
    data = load("paper", "logistic", data_dir=papers_data)
    assert (data.name, data.x.shape) == ("kdd99", (10_000, 38))
    assert optimum(data.x, data.y, "logistic") == pytest.approx(0.39673, abs=5e-6)
    # Negative control: without log1p the optimum is another.
    raw = np.load(papers_data / "kdd99_100000.npz")["x"][:10_000].astype(np.float64)
    wrong = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-300)
    assert optimum(wrong, data.y, "logistic") != pytest.approx(0.39673, abs=5e-5)
    # And as Ligett 2017 scales the rows.
    data = load("kdd99", "logistic", rows=10_000, data_dir=papers_data, normalise="max_l1")
    raw[:, :3] = np.log1p(raw[:, :3])
    np.testing.assert_allclose(data.x, raw / np.abs(raw).sum(axis=1).max(), rtol=1e-13)


@contextlib.contextmanager
def server(folder, content=None):
    """The address of a file store on this machine; it has one file, or none."""
    if content is not None:
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "5976042").write_bytes(content)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}/files"
        finally:
            httpd.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_fetch_downloads_once(small, tmp_path, monkeypatch):
    content = (small[0] / GZ).read_bytes()
    monkeypatch.setattr(kddcup, "SHA256", hashlib.sha256(content).hexdigest())
    target = tmp_path / "new" / "folder"
    with server(tmp_path / "store", content) as url:
        path = fetch("kdd99", target, base_url=url + "/")
    monkeypatch.setenv("NRJAX_DATA", str(target))
    assert fetch("kdd99", base_url=url) == path == target / GZ  # there already, and nobody asked
    assert path.read_bytes() == content
    assert [p.name for p in target.iterdir()] == [GZ]
    assert load("kdd99", "logistic", rows=10, data_dir=target).x.shape == (10, 38)


@pytest.mark.parametrize("before", [{}, {GZ: b"an older file"}])
def test_wrong_checksum_keeps_nothing(tmp_path_factory, tmp_path, before):
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    wrong = f"wrong checksum.*put the file {GZ} .* into {tmp_path}"
    with (
        server(tmp_path_factory.mktemp("store"), b"something else") as url,
        pytest.raises(ValueError, match=wrong),
    ):
        fetch("kdd99", tmp_path, base_url=url)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_offline_says_which_file_to_put_where(tmp_path_factory, tmp_path):
    message = f"could not be downloaded.*put the file {GZ} .*{kddcup.SHA256}.* into {tmp_path}"
    with (
        server(tmp_path_factory.mktemp("store")) as url,  # which has no such file
        pytest.raises(FileNotFoundError, match=message),
    ):
        fetch("kdd99", tmp_path, base_url=url)
    # Closed by now: the connection is refused.
    with pytest.raises(FileNotFoundError, match=message) as caught:
        fetch("kdd99", tmp_path, base_url=url)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
