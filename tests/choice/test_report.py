"""The printed table of a choice."""

import math

import pytest

from nrjax.choice.racing import Verdict
from nrjax.choice.report import Choice, Row


def row(name, verdict, scale, cheaper):
    interval = (0.00698 * scale, 0.0107 * scale)
    estimates = 1.0, (1.0, 1.0), 0.00838 * scale, interval, 0.0299 * scale, interval
    return Row(name, "Public test", verdict, *estimates, cheaper, None, "pure", 256)


def choice_of(*rows):
    return Choice("mean", 1.0, 0.9, "laplace", (), (), rows, "Take laplace.", None)


def test_the_advice_is_first_and_columns_line_up_for_small_epsilons():
    choice = choice_of(
        row("laplace", Verdict.BEST, 1.0, math.nan), row("brownian", Verdict.DEARER, 100.0, 0.3)
    )
    lines = str(choice).splitlines()
    assert lines[2] == "Take laplace."
    head, best, other = lines[6:9]
    assert "0.00838 ±28%" in best  # up to 0.0107
    assert head.index("verdict") == best.index("best") == other.index("more expensive")
    for heading, first, second in (
        ("median", "0.00838 ±28%", "0.838 ±28%"),
        ("90 %", "0.0299 ±77%", "2.99 ±77%"),
    ):
        end = head.index(heading) + len(heading)
        assert best[:end].endswith(first)
        assert other[:end].endswith(second)
    assert "Beats: fraction of runs" in str(choice)


@pytest.mark.parametrize("name", ["brownian-private-exponential", "a-" * 40])
def test_no_line_is_longer_than_88_columns_and_no_verdict_is_cut(name):
    rival = row(name, Verdict.CHEAPER, 1e-4, 0.3)._replace(is_open=True, met=0.9083)
    choice = choice_of(row("laplace", Verdict.BEST, 1.0, math.nan), rival)
    lines = str(choice).splitlines()
    assert max(map(len, lines)) <= 88
    place = next(line for line in lines if "verdict" in line).index("verdict")
    start = next(number for number, line in enumerate(lines) if "90.8%" in line)
    verdict = " ".join(line[place:].split("  ")[0].strip() for line in lines[start : start + 4])
    assert verdict.startswith("cheaper in most runs, may be best")
    assert f"{name}</td>" in choice._repr_html_()
    assert "cheaper in most runs, may be best</td>" in choice._repr_html_()
