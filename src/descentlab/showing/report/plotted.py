"""A figure in Plotly's terms, with the table of all its numbers."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Plot:
    """A figure for Plotly, the table of its numbers, and how much of its lines is shown (one in so many)."""

    data: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    table: list[tuple[Any, ...]] = field(default_factory=list)
    thinned: int = 1

    def as_json(self) -> dict[str, Any]:
        """What Plotly takes."""
        return {"data": self.data, "layout": self.layout}

    def table_as_csv(self) -> str:
        """All numbers, not thinned."""
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(("panel", "series", "x", "y", "value"))
        rows.writerows(self.table)
        return text.getvalue()
