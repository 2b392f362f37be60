"""The typeface of figures for pages, so that labels take the room on a screen that they take in print."""

import base64
import io
import logging
from functools import cache
from pathlib import Path

import matplotlib
from fontTools import subset

NAME = "STIXGeneral"
# Letters, accents, Greek, punctuation, scripts, arrows and operators: what labels are written with.
SIGNS = (
    range(0x20, 0x180), range(0x300, 0x330), range(0x370, 0x400), range(0x2000, 0x20A0),
    range(0x20D0, 0x20E0), range(0x2100, 0x2300), range(0x27E8, 0x27EA),
)  # fmt: skip


@cache
def stylesheet() -> str:
    """A style sheet with the typeface inside: a page that is opened from a disk may not load font files."""
    source = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{NAME}.ttf"
    options = subset.Options(flavor="woff", hinting=False, recalc_timestamp=False, drop_tables=["FFTM"])
    logging.getLogger("fontTools.subset").setLevel(logging.ERROR)
    worker, buffer = subset.Subsetter(options), io.BytesIO()
    with subset.load_font(source, options) as font:
        worker.populate(unicodes=[sign for part in SIGNS for sign in part])
        worker.subset(font)
        subset.save_font(font, buffer, options)
    content = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'@font-face {{ font-family: {NAME}; src: url("data:font/woff;base64,{content}") format("woff"); }}\n'
    )
