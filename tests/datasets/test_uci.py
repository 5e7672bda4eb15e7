"""KDD-Cup-99 and Twitter: the same rows from every form of a file, and the download."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import threading

import numpy as np
import pytest

from nrjax.datasets import available, fetch, load, uci

GZ, NPZ = "kddcup.data_10_percent.gz", "twitter_buzz_20000.npz"
pytestmark = [
    pytest.mark.usefixtures("quiet_sockets"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def _small(monkeypatch):
    """Published files have 300 rows, of which 200 are drawn."""
    for name, rows in (("KDD99_ROWS", 300), ("TWITTER_ROWS", 300), ("DRAWN", 200)):
        monkeypatch.setattr(uci, name, rows)


@pytest.fixture
def kdd99(_small, tmp_path):
    """A folder with an invented file, and the lines of the file."""
    rng = np.random.default_rng(5)

    def line():
        numbers = [str(v) for v in rng.integers(0, 2_000_000_000, 38)]
        label = rng.choice(["normal.", "smurf.", "neptune."])
        return ",".join([numbers[0], "tcp", "http", "SF", *numbers[1:], label]) + "\n"

    lines = [line() for _ in range(300)]
    folder = tmp_path / "data"
    folder.mkdir()
    with gzip.open(folder / GZ, "wt") as file:
        file.writelines(lines)
    return folder, lines


@pytest.fixture
def twitter():
    """An invented table of 300 rows."""
    rng = np.random.default_rng(3)
    return rng.integers(0, 40_000, (300, 78)) / np.where(np.arange(78) % 3, 1, 7)


def drawn(rows):
    return np.random.default_rng(0).choice(300, 200, replace=False)[:rows]


def test_kdd99_rows_are_those_of_a_plain_reading(kdd99, tmp_path):
    folder, lines = kdd99
    rows = [lines[i].split(",") for i in drawn(150)]
    x = np.array([[float(v) for v in [row[0], *row[4:41]]] for row in rows])
    x = x.astype(np.float32).astype(np.float64)
    x[:, :3] = np.log1p(x[:, :3])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    (tmp_path / "kddcup.data_10_percent").write_text("".join(lines))  # the same, unpacked
    for place in (folder, tmp_path):
        data = load("kdd99", "logistic", rows=150, data_dir=place)
        np.testing.assert_allclose(data.x, x, rtol=1e-13)
        np.testing.assert_array_equal(data.y, [-1 if r[41] == "normal.\n" else 1 for r in rows])
    logged = ("log1p(duration)", "log1p(src_bytes)", "log1p(dst_bytes)")
    assert data.feature_names[:4] == (*logged, "land")
    assert len(data.feature_names) == 38


@pytest.mark.parametrize("damage", ["short", "truncated", "text", "columns"])
def test_a_damaged_kdd99_file_is_refused_and_nothing_is_written(kdd99, damage):
    folder, lines = kdd99
    content = gzip.compress("".join(lines).encode())
    content = {
        "short": gzip.compress("".join(lines[:250]).encode()),
        "truncated": content[: len(content) // 2],
        "text": b"<html>try later</html>",
        "columns": gzip.compress("".join(row[row.index(",") + 1 :] for row in lines).encode()),
    }[damage]
    (folder / GZ).write_bytes(content)
    with pytest.raises(ValueError, match=r"could not be read as CSV|cut short or another one"):
        load("kdd99", "logistic", rows=10, data_dir=folder)
    assert [path.name for path in folder.iterdir()] == [GZ]


@pytest.mark.long
def test_the_published_file_and_the_npz_give_the_same_rows(papers_data, papers_file, tmp_path):
    papers_file(GZ)
    (tmp_path / GZ).symlink_to(papers_data / GZ)
    assert hashlib.sha256((tmp_path / GZ).read_bytes()).hexdigest() == uci.KDD99_SHA256
    whole = load("kdd99", "logistic", rows=100_000, data_dir=tmp_path)
    npz = load("kdd99", "logistic", rows=100_000, data_dir=papers_data)
    assert whole.x.shape == (100_000, 38)
    np.testing.assert_array_equal(whole.x, npz.x)
    np.testing.assert_array_equal(whole.y, npz.y)


def test_the_kdd99_optimum_is_that_of_the_paper(papers_data, optimum):
    data = load("paper", "logistic", data_dir=papers_data)
    assert (data.name, data.x.shape) == ("kdd99", (10_000, 38))
    assert optimum(data.x, data.y, "logistic") == pytest.approx(0.39673, abs=5e-6)
    # Negative control: without log1p the optimum is another.
    raw = np.load(papers_data / "kdd99_100000.npz")["x"][:10_000].astype(np.float64)
    wrong = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-300)
    assert optimum(wrong, data.y, "logistic") != pytest.approx(0.39673, abs=5e-5)
    # Rows as scaled in Ligett 2017.
    data = load("kdd99", "logistic", rows=10_000, data_dir=papers_data, normalise="max_l1")
    raw[:, :3] = np.log1p(raw[:, :3])
    np.testing.assert_allclose(data.x, raw / np.abs(raw).sum(axis=1).max(), rtol=1e-13)


def test_the_twitter_optimum_is_that_of_the_paper(papers_data, papers_file, optimum):
    papers_file(NPZ)
    data = load("paper", "ridge", data_dir=papers_data)
    assert (data.name, data.x.shape, len(data.feature_names)) == ("twitter", (10_000, 77), 77)
    assert np.abs(data.y).max() == 1
    assert optimum(data.x, data.y, "ridge") == pytest.approx(0.013443, abs=5e-7)
    # Negative control: without log1p the optimum is another.
    raw = np.load(papers_data / NPZ)["y"][:10_000].astype(np.float64)
    assert optimum(data.x, raw / raw.max(), "ridge") != pytest.approx(0.013443, abs=5e-5)


def check_twitter(data, table):
    x, y = table[:, :77], np.log1p(table[:, 77])
    np.testing.assert_allclose(data.x, x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(data.y, y / y.max(), rtol=1e-6)


def test_the_twitter_npz_is_preferred(twitter, tmp_path):
    np.savez(tmp_path / NPZ, x=twitter[:30, :77], y=twitter[:30, 77])
    (tmp_path / "Twitter.data").write_text("not read")
    check_twitter(load("twitter", "ridge", rows=20, data_dir=tmp_path), twitter[:20])
    with pytest.raises(ValueError, match="rows must be at most 30"):
        load("twitter", "ridge", rows=31, data_dir=tmp_path)


@pytest.mark.usefixtures("_small")
def test_the_published_twitter_file_is_drawn_from(twitter, tmp_path):
    lines = [",".join(map(repr, row)) + "\n" for row in twitter.tolist()]
    (tmp_path / "Twitter.data").write_text("".join(lines))
    data = load("twitter", "ridge", rows=150, data_dir=tmp_path)
    check_twitter(data, twitter[drawn(150)])
    assert available(tmp_path)[2].rows == 200
    for text, message in (
        ("".join(lines[:299]), r"got \(299, 78\)\)\. The file is cut short or another one"),
        ("".join(lines)[:-3000], "cut short or another one"),
        ("<html>\n", "could not be read as CSV"),
    ):
        (tmp_path / "Twitter.data").write_text(text)
        with pytest.raises(ValueError, match=message):
            load("twitter", "ridge", rows=150, data_dir=tmp_path)


@contextlib.contextmanager
def server(folder, content=None):
    """Serve one file, or none, on this machine, and give the address."""
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


def test_fetch_downloads_once(kdd99, tmp_path, monkeypatch):
    content = (kdd99[0] / GZ).read_bytes()
    monkeypatch.setattr(uci, "KDD99_SHA256", hashlib.sha256(content).hexdigest())
    target = tmp_path / "new" / "folder"
    with server(tmp_path / "store", content) as url:
        path = fetch("kdd99", target, base_url=url + "/")
    monkeypatch.setenv("NRJAX_DATA", str(target))
    assert fetch("kdd99", base_url=url) == path == target / GZ  # the server is down by now
    assert path.read_bytes() == content
    assert [p.name for p in target.iterdir()] == [GZ]
    assert load("kdd99", "logistic", rows=10, data_dir=target).x.shape == (10, 38)


@pytest.mark.parametrize("before", [{}, {GZ: b"an older file"}])
def test_a_wrong_checksum_keeps_nothing(tmp_path_factory, tmp_path, before):
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    message = f"wrong checksum, nothing kept. Put the file {GZ} .* into {tmp_path}"
    with (
        server(tmp_path_factory.mktemp("store"), b"something else") as url,
        pytest.raises(ValueError, match=message),
    ):
        fetch("kdd99", tmp_path, base_url=url)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_failed_download_names_the_file_and_its_place(tmp_path_factory, tmp_path):
    message = f"could not be downloaded.*Put the file {GZ} .*{uci.KDD99_SHA256}.* into {tmp_path}"
    with (
        server(tmp_path_factory.mktemp("store")) as url,  # which has no such file
        pytest.raises(FileNotFoundError, match=message),
    ):
        fetch("kdd99", tmp_path, base_url=url)
    # The server is down by now: the connection is refused.
    with pytest.raises(FileNotFoundError, match=message) as caught:
        fetch("kdd99", tmp_path, base_url=url)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
