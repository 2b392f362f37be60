"""Numbers, intervals and small tables as a reader wants them: four digits, no exponents where avoidable.

>>> number(0.00012345), number(-1.50001), number(20000), number(3.2e-9), number(float("inf"))
('0.0001234', '−1.5', '20000', '3.2×10⁻⁹', '∞')
>>> interval(0.0, float("inf"))
'[0, ∞)'
"""

import csv
import io
import math
import numbers
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

DIGITS = 4
MOST_DIGITS = 7
LEFT = 'style="text-align:left"'
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(x: Any, digits: int = DIGITS) -> str:
    """A number in words of a page; whole numbers keep all their digits, what is no number stays as it is."""
    x = x.item() if hasattr(x, "item") and getattr(x, "size", 1) == 1 else x
    if isinstance(x, bool | np.bool_):
        return "yes" if x else "no"
    if x is None or (isinstance(x, float) and math.isnan(x)):
        return "–"
    if not isinstance(x, numbers.Real):
        return str(x)
    x = int(x) if isinstance(x, numbers.Integral) else float(x)
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    return ("−" if x < 0 else "") + _magnitude(abs(x), digits)


def distinct(*xs: Any) -> list[str]:
    """Numbers with so many digits that different ones look different, where a few more digits do that."""
    for digits in range(DIGITS, MOST_DIGITS + 1):
        texts = [number(x, digits) for x in xs]
        if len(set(texts)) == len(set(xs)):
            return texts
    return [number(x) for x in xs]


def interval(low: Any, high: Any, texts: tuple[str, str] | None = None) -> str:
    """A closed interval, open at its infinite ends."""
    if math.isnan(low) or math.isnan(high):
        return "–"
    left, right = texts or distinct(low, high)
    return f"{'(' if math.isinf(low) else '['}{left}, {right}{')' if math.isinf(high) else ']'}"


def percent(share: float) -> str:
    """A confidence level.

    >>> percent(0.95), percent(1 - 0.05 / 6)
    ('95 %', '99.17 %')
    """
    return f"{number(100 * share)} %"


def _magnitude(x: Any, digits: int) -> str:
    if x == int(x) and x < 1e7:
        return str(int(x))
    mantissa, _, power = f"{x:.{digits - 1}e}".partition("e")
    exponent = int(power)
    if -5 < exponent < 7:
        fixed = f"{x:.{max(0, digits - 1 - exponent)}f}"
        return fixed.rstrip("0").rstrip(".") if "." in fixed else fixed
    mantissa = mantissa.rstrip("0").rstrip(".")
    return ("" if mantissa == "1" else f"{mantissa}×") + "10" + str(exponent).translate(SUPERSCRIPT)


def csv_table(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def html_table(rows: Mapping[str, Any]) -> str:
    """Names and values as a small table in HTML, as notebooks show it."""
    cells = "".join(
        f"<tr><th {LEFT}>{escape(name)}</th><td {LEFT}>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value
    )
    return f"<table>{cells}</table>"
