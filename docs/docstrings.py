"""Docstrings as Markdown: doctests become blocks of code, and < stays a sign (an extension of griffe)."""

import re
from typing import Any

from griffe import Docstring, Extension, Object

BLOCK = re.compile(r"(?:^|\n\n)(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


def as_markdown(text: str) -> str:
    """A docstring as Markdown.

    >>> as_markdown("So it is.\\n\\n>>> 1 < 2\\nTrue")
    'So it is.\\n\\n```pycon\\n>>> 1 < 2\\nTrue\\n```'
    >>> as_markdown("|a| <= <v, mu>")
    '|a| &lt;= &lt;v, mu>'
    """
    parts = BLOCK.split(text)
    words = [escaped(part) if i % 2 == 0 else f"\n\n```pycon\n{part}\n```" for i, part in enumerate(parts)]
    return "".join(words).strip()


def escaped(text: str) -> str:
    """Text in which < is no tag, outside of code."""
    lines = []
    for line in text.split("\n"):
        if line.startswith("    "):
            lines.append(line)
            continue
        pieces = line.split("`")
        lines.append("`".join(p.replace("<", "&lt;") if i % 2 == 0 else p for i, p in enumerate(pieces)))
    return "\n".join(lines)


class Markdown(Extension):
    """Rewrites every docstring when it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Once an object with a docstring is known."""
        if isinstance(obj.docstring, Docstring):
            obj.docstring.value = as_markdown(obj.docstring.value)
