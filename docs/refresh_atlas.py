"""Writes the table and the picture of docs/atlas.md anew from the store, running what it lacks.

python docs/refresh_atlas.py
"""

import re
from pathlib import Path

from descentlab import Store
from descentlab.atlas import as_markdown, survey
from descentlab.drawing import save
from descentlab.showing.report.atlas import draw
from descentlab.showing.terminal import Display

HERE = Path(__file__).parent
SEEDS = 8


def main() -> None:
    """Rewrites what is between the marks, and the picture."""
    store = Store(None)
    with Display(store, forecast=True) as display:
        atlas = survey(SEEDS, store, progress=display)
    page = HERE / "atlas.md"
    table = f"<!-- atlas -->\n{as_markdown(atlas)}\n<!-- end of atlas -->"
    whole = re.sub(
        r"<!-- atlas -->.*<!-- end of atlas -->", lambda _: table, page.read_text(), flags=re.DOTALL
    )
    page.write_text(whole)
    save(draw(atlas), HERE / "images" / "atlas.png")


if __name__ == "__main__":
    main()
