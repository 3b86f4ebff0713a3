"""Numbers as the pages show them."""

from __future__ import annotations

from tinyxp.html.markup import Html, escape


def number(x: float) -> Html:
    """Return x with four significant digits: 0.1235, 1235, 1.235e-05."""
    return escape(f"{x:.4g}")


def percent(share: float) -> Html:
    """Return a share as 12.3 %. A share above 0 never becomes 0.0 %, but < 0.1 %."""
    return escape("< 0.1 %" if 0.0 < share < 0.0005 else f"{100.0 * share:.1f} %")


def thousands(n: int) -> Html:
    """Return an integer as 1,234,567."""
    return escape(f"{n:,}")


def round_to(x: float, digits: int = 4) -> float:
    """Round x to so many significant digits, which keeps JSON short."""
    return float(f"{x:.{digits}g}")
