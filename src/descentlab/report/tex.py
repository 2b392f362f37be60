r"""Matplotlib's mathematics as the little HTML that interactive plots take.

>>> html(r"$\|W_V - V^\ast\|_F$ at $10^{-3}$")
'‖W<sub>V</sub> − V<sup>∗</sup>‖<sub>F</sub> at 10<sup>−3</sup>'
"""

import re
import unicodedata

SYMBOLS = {
    "varepsilon": "ε", "varphi": "φ", "ell": "ℓ", "infty": "∞", "partial": "∂", "nabla": "∇", "pm": "±",
    "times": "×", "cdot": "·", "ast": "∗", "star": "⋆", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥",
    "neq": "≠", "approx": "≈", "propto": "∝", "sim": "∼", "to": "→", "rightarrow": "→", "langle": "⟨",
    "rangle": "⟩", "prime": "′", "in": "∈", "sum": "Σ", "prod": "Π", "sqrt": "√", "|": "‖", "mid": "|",
    "dots": "…", "ldots": "…", "cdots": "⋯", "odot": "⊙", "lambda": "λ", "Lambda": "Λ",
    ",": "\u2009", ";": "\u2009", ":": "\u2009", " ": " ", "quad": " ", "!": "",
}  # fmt: skip
ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303", "vec": "\u20d7", "dot": "\u0307"}
WORDS = {
    "mathrm",
    "mathbf",
    "mathcal",
    "mathit",
    "text",
    "operatorname",
    "mathdefault",
    "mathbb",
    "left",
    "right",
    "big",
    "Big",
}
TOKEN = re.compile(r"\\([A-Za-z]+|.)\s*|([{}_^]|.)", re.DOTALL)


def html(text: str) -> str:
    """A label with its formulas as HTML; what stands between dollars is mathematics."""
    parts = str(text).split("$")
    plain = [
        _escape(part).replace("\n", "<br>") if i % 2 == 0 else _formula(part) for i, part in enumerate(parts)
    ]
    return "".join(plain)


def _greek(name: str) -> str:
    """A Greek letter by its name; any other word, such as log, stays as it is."""
    size = "CAPITAL" if name[:1].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {name.upper()}")
    except KeyError:
        return name


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _formula(source: str) -> str:
    tokens = [match.groups() for match in TOKEN.finditer(source)]
    found, rest = _group(tokens, 0)
    assert rest == len(tokens), source
    return found


def _group(tokens: list, at: int) -> tuple[str, int]:
    """What stands up to the brace that closes, and the place after it."""
    found = ""
    while at < len(tokens) and tokens[at] != (None, "}"):
        one, at = _atom(tokens, at)
        found += one
    return found, at


def _atom(tokens: list, at: int) -> tuple[str, int]:
    command, sign = tokens[at]
    at += 1
    if command is not None:
        if command in WORDS:
            return "", at
        if command == "frac":
            above, at = _atom(tokens, at)
            below, at = _atom(tokens, at)
            return f"{above}/{below}", at
        if command in ACCENTS:
            inner, at = _atom(tokens, at)
            return inner[:1] + ACCENTS[command] + inner[1:], at
        return SYMBOLS[command] if command in SYMBOLS else _greek(command), at
    if sign == "{":
        inner, at = _group(tokens, at)
        return inner, at + 1
    if sign in "_^":
        inner, at = _atom(tokens, at)
        tag = "sub" if sign == "_" else "sup"
        return f"<{tag}>{inner}</{tag}>", at
    return {"-": "−", "'": "′", "~": " "}.get(sign, _escape(sign)), at
