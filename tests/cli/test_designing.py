"""The command `nrjax design`: its tables, its errors, and its Python code."""

import re

import numpy as np
import pytest

import nrjax
from nrjax.cli import main

NUMBER = r" +([\d.]+)"


def test_prints_the_curve_the_others_and_the_price(capsys):
    assert main(["design", "0.2", "0.6", "--levels", "0.1", "2", "8", "--sensitivity", "2"]) == 0
    printed = capsys.readouterr().out
    curve = np.array(re.findall(rf"^{4 * NUMBER} *$", printed, re.MULTILINE), float)
    assert curve.shape == (8, 4)
    np.testing.assert_allclose(curve[:, 0], np.geomspace(0.1, 2, 8), rtol=1e-3)
    np.testing.assert_allclose(curve[:, 3], curve[:, 2] / curve[:, 0], rtol=2e-3)
    # The printed code makes the printed curve.
    names: dict = {"nrjax": nrjax, "np": np}
    exec(printed[printed.index("single =") :], names)
    boundary = names["boundary"]
    np.testing.assert_allclose(boundary.epsilons, curve[:, 2], rtol=1e-3)
    np.testing.assert_allclose(boundary.times, curve[:, 1] ** 2, rtol=2e-3)
    # The design is the cheapest boundary on average, the notions are named, and it pays only for
    # surprises.
    costs = re.findall(rf"(\w+)\.?[\w ]*? (hockey-stick|probabilistic){3 * NUMBER}", printed)
    assert [row[0] for row in costs][:3] == ["HockeyStickBoundary", "RenyiMixture", "RenyiBoundary"]
    means, variances = (np.array([row[k] for row in costs], float) for k in (2, 3))
    assert len(costs) == 6
    assert np.all(np.append(means[1:3], variances[1:3] / variances[0]) > 1)
    assert means[0] < min(means[1:])
    assert [row[1] for row in costs].count("probabilistic") == 3
    prices = dict(re.findall(r"(as you expect|earlier|later) .* ([\d.-]+) %", printed))
    assert abs(float(prices["as you expect"])) < 0.1
    assert min(float(prices["earlier"]), float(prices["later"])) > 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("0.6 0.2", "likely must be LOW HIGH"),
        ("0.2 0.6 --levels 0.3 2 9", "levels must be LOW HIGH COUNT around"),
        ("0.2 0.6 --levels 0.01 100 2", "times must be partly between"),
        ("0.2 0.6 --levels 0.1 1 5 --delta 0.3", "delta must be at least"),
    ],
)
def test_refuses(arguments, message, capsys):
    assert main(["design", *arguments.split()]) == 2
    assert message in capsys.readouterr().err
