"""Functions that format numbers and names for tables and sentences, and for strict JSON."""

import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nrjax.statistics.intervals import rank_interval


def json_safe(value: Any) -> Any:
    """Return a number or nested lists of numbers, with None for infinite and NaN."""
    if isinstance(value, (list, tuple)):
        return [json_safe(part) for part in value]
    return value if value is None or np.isfinite(value) else None


def number(value: float | None) -> str:
    """Return a number as text with four digits, and "inf" for None."""
    return "inf" if value is None else f"{value:.4g}"


def upper(value: float | None, digits: int = 4) -> str:
    """Return a number as text with so many digits, rounded up, and "inf" for None.

    A sentence that says "at most" needs it. A number is taken as equal to a text that is below it
    by less than its own rounding to float32.
    """
    if value is None or not math.isfinite(value):
        return "inf" if value is None else f"{value:g}"
    nearest = f"{value:.{digits}g}"
    if float(nearest) >= value - abs(value) * 2.0**-23:
        return nearest
    rounding = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return f"{float(rounding.create_decimal(decimal.Decimal(value))):.{digits}g}"


def lower(value: float, digits: int = 4) -> str:
    """Return a finite number as text with so many digits, rounded down."""
    text = upper(-value, digits)
    return text[1:] if text.startswith("-") else f"-{text}"


def humanise(name: str) -> str:
    """Return a name with spaces in place of underscores and dashes."""
    return name.replace("_", " ").replace("-", " ")


def percent(value: float | None) -> str:
    """Return a fraction in per cent, rounded but never to 0 or 100, or "-" for None."""
    if value is None:
        return "-"
    shown = f"{100 * value:.4g}"
    if shown in ("0", "100") and 0 < value < 1:
        shown = f"{100 * value:.8f}".rstrip("0")
    return f"{shown} %"


def span(ends: Sequence[float | None], low: str = "inf", *, outward: bool = False) -> str:
    """Return an interval as "lower-upper", or one number if both ends are written alike.

    A lower end of None is `low`, and an upper one "inf". An interval of all numbers is "unknown".

    Args:
        ends: lower and upper end.
        low: text for a lower end of None.
        outward: whether to round the lower end down and the upper one up, to four digits; a single
            number is rounded up. Otherwise both are rounded to three digits.
    """
    first, second = (None if end is None else f"{end:.3g}" for end in ends)
    if outward:
        down = upper if ends[0] == ends[1] else lower
        first = None if ends[0] is None else down(ends[0])
        second = None if ends[1] is None else upper(ends[1])
    first, second = first or low, second or "inf"
    if first == "-inf":
        return "unknown" if second == "inf" else f"up to {second}"
    return first if first == second else f"{first}-{second}"


def lowest(trials: int, fraction: float) -> str:
    """Return the text for the lower end of a quantile's 95 % interval, if it is None.

    The text is "-inf" if there are too few trials to set a lower end, otherwise "inf".
    """
    return "-inf" if rank_interval(trials, fraction)[0] < 1 else "inf"


def within(value: float | None, ends: Sequence[float | None]) -> str:
    """Return a number as text, with the distance to the farther end of its interval.

    The distance is in per cent of the number, or absolute if the number is 0.
    """
    if value is None:
        return "inf"
    if None in ends:
        return f"{value:.4g} ±inf"
    far = max(abs(end - value) for end in ends if end is not None)
    if value == 0 and far > 0:
        return f"{value:.4g} ±{_up(far)}"
    percent = 100 * far / abs(value) if value else 0.0
    return f"{value:.4g} ±{_up(percent)}%"


def _up(value: float) -> str:
    """Return a number as text with two digits, rounded up."""
    if value <= 0:
        return "0"
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    digits = math.ceil(value / scale * (1 - 1e-9))
    return f"{digits * scale:.0f}" if scale >= 1 else f"{digits * scale:.2g}"
