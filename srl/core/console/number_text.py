"""Numbers as a person reads them: on the terminal, in labels and in captions."""

from __future__ import annotations

import math

_LEAST, _MOST = 1e-4, 1e15
"""The limits between which a number is written without an exponent."""


def number_text(value: float | None, digits: int = 3) -> str:
    """A number in `digits` significant digits; larger ones whole, with commas.

    12345.6 is "12,346" and 0.00123 is "0.00123"; what is not a number is "-", as is None.
    """
    if value is None or math.isnan(value):
        return "-"
    rounded = float(f"{value:.{digits - 1}e}")  # so that 999.6 is a thousand
    if rounded and not _LEAST <= abs(rounded) < _MOST:
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if abs(rounded) >= 10**digits else f"{rounded:.{digits}g}"
