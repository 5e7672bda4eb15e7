"""KDD-99: one set of rows from every form of the file, and the download."""

import contextlib
import gc
import gzip
import hashlib
import http.server
import shutil
import socket
import threading
import warnings

import numpy as np
import pytest

from nrjax.datasets import data_folder, fetch, kddcup, load

GZ = "kddcup.data_10_percent.gz"


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


def test_rows_are_those_of_a_plain_reading(small):
    folder, lines = small
    drawn = [lines[i].split(",") for i in np.random.default_rng(0).choice(300, 200, replace=False)]
    x = np.array([[float(v) for v in [row[0], *row[4:41]]] for row in drawn[:150]])
    x = x.astype(np.float32).astype(np.float64)
    x[:, :3] = np.log1p(x[:, :3])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    data = load("kdd99", "logistic", rows=150, data_dir=folder)
    np.testing.assert_allclose(data.x, x, rtol=1e-13)
    labels = [-1 if row[41] == "normal.\n" else 1 for row in drawn[:150]]
    np.testing.assert_array_equal(data.y, labels)
    logged = ("log1p(duration)", "log1p(src_bytes)", "log1p(dst_bytes)")
    assert data.feature_names[:4] == (*logged, "land")
    assert len(data.feature_names) == 38


def test_unpacked_file_gives_the_same(small, tmp_path):
    folder, lines = small
    (tmp_path / "kddcup.data_10_percent").write_text("".join(lines))
    packed = load("kdd99", "logistic", rows=200, data_dir=folder)
    unpacked = load("kdd99", "logistic", rows=200, data_dir=tmp_path)
    np.testing.assert_array_equal(packed.x, unpacked.x)
    np.testing.assert_array_equal(packed.y, unpacked.y)


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


def test_damaged_npz_is_refused(tmp_path):
    for arrays, message in (
        ({"x": np.zeros((4, 37)), "y": np.ones(4)}, r"x of shape \(4, 37\)"),
        ({"x": np.zeros((4, 38)), "y": np.zeros(4)}, "y of -1 and 1"),
        ({"x": np.zeros((4, 38))}, r"lacks \['y'\]"),
    ):
        np.savez(tmp_path / "kdd99_100000.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            load("kdd99", "logistic", data_dir=tmp_path)


def test_missing_file_says_which_and_where(tmp_path, monkeypatch, cache):
    with pytest.raises(FileNotFoundError, match=f"put the file {GZ}.* into {tmp_path}"):
        load("kdd99", "logistic", data_dir=tmp_path)
    assert data_folder() == cache
    monkeypatch.setenv("NRJAX_DATA", str(tmp_path / "other"))
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "other")):
        load("kdd99", "logistic")


def test_whole_file_and_npz_give_the_same_rows(papers_data, papers_file, tmp_path):
    papers_file(GZ)
    (tmp_path / GZ).symlink_to(papers_data / GZ)
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
    raw /= np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-300)
    assert optimum(raw, data.y, "logistic") != pytest.approx(0.39673, abs=5e-5)


@contextlib.contextmanager
def server(content, status=200):
    """A file store on this machine that answers every request with `content`."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}/files", asked
        finally:
            httpd.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_proxy_and_quiet_sockets(monkeypatch):
    """What the client leaves of its sockets is collected here, not in somebody else's test."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_fetch_downloads_once(small, tmp_path, monkeypatch):
    content = (small[0] / GZ).read_bytes()
    monkeypatch.setattr(kddcup, "SHA256", hashlib.sha256(content).hexdigest())
    target = tmp_path / "new" / "folder"
    with server(content) as (url, asked):
        path = fetch("kdd99", target, base_url=url)
        fetch("kdd99", target, base_url=url + "/")
    assert asked == ["/files/5976042"]
    assert path == target / GZ
    assert path.read_bytes() == content
    assert [p.name for p in target.iterdir()] == [GZ]
    assert load("kdd99", "logistic", rows=10, data_dir=target).x.shape == (10, 38)


def test_fetch_of_the_real_file_has_the_pinned_checksum(papers_data, papers_file, tmp_path):
    papers_file(GZ)
    with server((papers_data / GZ).read_bytes()) as (url, _):
        path = fetch("kdd99", tmp_path, base_url=url)
    assert path.read_bytes() == (papers_data / GZ).read_bytes()


@pytest.mark.parametrize("before", [None, b"an older file"])
def test_wrong_checksum_keeps_nothing(tmp_path, before):
    if before is not None:
        (tmp_path / GZ).write_bytes(before)
    with (
        server(b"something else") as (url, _),
        pytest.raises(ValueError, match=f"wrong checksum.*put the file {GZ} .* into {tmp_path}"),
    ):
        fetch("kdd99", tmp_path, base_url=url)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert left == ({} if before is None else {GZ: before})


def test_offline_says_which_file_to_put_where(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # free once closed: the connection will be refused
    message = f"could not be downloaded.*put the file {GZ} .*{kddcup.SHA256}.* into {tmp_path}"
    with pytest.raises(FileNotFoundError, match=message) as caught:
        fetch("kdd99", tmp_path, base_url=f"http://127.0.0.1:{port}/files")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    # And so where the answer is that there is none.
    not_found = pytest.raises(FileNotFoundError, match=f"put the file {GZ}")
    with server(b"", status=404) as (url, _), not_found:
        fetch("kdd99", tmp_path, base_url=url)


def test_fetch_uses_the_data_variable(small, tmp_path, monkeypatch):
    content = (small[0] / GZ).read_bytes()
    monkeypatch.setattr(kddcup, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setenv("NRJAX_DATA", str(tmp_path / "chosen"))
    (tmp_path / "chosen").mkdir()
    shutil.copy(small[0] / GZ, tmp_path / "chosen" / GZ)
    assert fetch("kdd99", base_url="http://127.0.0.1:9") == tmp_path / "chosen" / GZ


@pytest.mark.parametrize("name", ["flights", "twitter"])
def test_fetch_of_another_set_says_how_to_get_it(name):
    with pytest.raises(ValueError, match=f"name = '{name}': it is not downloaded; "):
        fetch(name)
    with pytest.raises(ValueError, match="name = 'cifar': must be 'kdd99'"):
        fetch("cifar")
