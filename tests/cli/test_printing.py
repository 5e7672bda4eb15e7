"""Tables on a narrow terminal."""

import io

import pytest
import rich.console

from nrjax.cli import printing

HEADINGS = ("case", "ended", "half pay at most", "95 % interval", "middle half", "9 of 10")
ROWS = [
    (
        "logistic-brownian-reduced_above_threshold",
        "98.4 %",
        "34.33",
        "33.91-34.87",
        "0.18-0.2",
        "36.22",
    ),
    ("ridge", "100 %", "0.2803", "0.2756-0.2849", "0.25-0.319", "0.3801"),
]


@pytest.mark.parametrize("width", [66, 88, 200])
def test_numbers_and_names_are_whole_on_any_terminal(width, monkeypatch):
    file = io.StringIO()
    shown = rich.console.Console(file=file, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(printing, "console", lambda: shown)
    printing.show("a title", HEADINGS, ROWS)
    printing.say("A sentence of many words. " * 20)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for name, *numbers in ROWS:
        line = next(line for line in lines if all(number in line for number in numbers))
        names = [each[: each.find(numbers[0])] if each is line else each for each in lines]
        start = lines.index(line)
        whole = "".join(each.split("  ")[0].strip() for each in names[start : start + 12])
        assert whole.startswith(name)
