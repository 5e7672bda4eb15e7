"""Twitter buzz: the prepared draw, the whole file, and the paper's optimum."""

import numpy as np
import pytest

from nrjax.datasets import available, load, twitter

NPZ = "twitter_buzz_20000.npz"


def made_up(n):
    rng = np.random.default_rng(3)
    return rng.integers(0, 40_000, (n, 78)) / np.where(np.arange(78) % 3, 1, 7)


def test_optimum_of_the_paper(papers_data, papers_file, optimum):
    papers_file(NPZ)
    data = load("paper", "ridge", data_dir=papers_data)
    assert (data.name, data.x.shape, len(data.feature_names)) == ("twitter", (10_000, 77), 77)
    assert np.abs(data.y).max() == 1
    assert optimum(data.x, data.y, "ridge") == pytest.approx(0.013443, abs=5e-7)
    # Negative control: without log1p the optimum is another.
    raw = np.load(papers_data / NPZ)["y"][:10_000].astype(np.float64)
    assert optimum(data.x, raw / raw.max(), "ridge") != pytest.approx(0.013443, abs=5e-5)


def test_npz_comes_first_and_is_read_as_it_stands(tmp_path):
    table = made_up(30).astype(np.float32)
    np.savez(tmp_path / NPZ, x=table[:, :77], y=table[:, 77])
    (tmp_path / "Twitter.data").write_text("not read")
    data = load("twitter", "ridge", rows=20, data_dir=tmp_path)
    x = table[:20, :77].astype(np.float64)
    y = np.log1p(table[:20, 77].astype(np.float64))
    np.testing.assert_allclose(data.x, x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(data.y, y / y.max(), rtol=1e-13)
    with pytest.raises(ValueError, match="rows must be at most 30"):
        load("twitter", "ridge", rows=31, data_dir=tmp_path)


def test_whole_file_is_drawn_from(tmp_path, monkeypatch):
    monkeypatch.setattr(twitter, "WHOLE", 300)
    monkeypatch.setattr(twitter, "DRAWN", 200)
    table = made_up(300)
    lines = [",".join(map(repr, row)) + "\n" for row in table.tolist()]
    (tmp_path / "Twitter.data").write_text("".join(lines))
    data = load("twitter", "ridge", rows=150, data_dir=tmp_path)
    rows = np.random.default_rng(0).choice(300, 200, replace=False)[:150]
    x, y = table[rows, :77], np.log1p(table[rows, 77])
    np.testing.assert_allclose(data.x, x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(data.y, y / y.max(), rtol=1e-6)
    assert available(tmp_path)[2].rows == 200
    for text, message in (
        ("".join(lines[:299]), r"\(299, 78\).*cut short or another one"),
        ("".join(lines)[:-3000], "cut short or another one"),
        ("<html>\n", "could not be read as the UCI Twitter file"),
    ):
        (tmp_path / "Twitter.data").write_text(text)
        with pytest.raises(ValueError, match=message):
            load("twitter", "ridge", rows=150, data_dir=tmp_path)
