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
    "rangle": "⟩", "prime": "′", "in": "∈", "sum": "Σ", "prod": "Π", "|": "‖", "mid": "|",
    "top": "⊤", "dots": "…", "ldots": "…", "cdots": "⋯", "odot": "⊙", "lambda": "λ", "Lambda": "Λ",
    ",": "\u2009", ";": "\u2009", ":": "\u2009", " ": " ", "quad": " ", "!": "",
}  # fmt: skip
# These stand between two things, with room on both sides.
BETWEEN = {
    "leq",
    "le",
    "geq",
    "ge",
    "neq",
    "approx",
    "propto",
    "sim",
    "to",
    "rightarrow",
    "in",
    "times",
    "pm",
}
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
    return re.sub(" +", " ", found)


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
            return f"{_together(above)}/{_together(below)}", at
        if command == "sqrt":
            inner, at = _atom(tokens, at)
            return f"√{_together(inner)}", at
        if command in ACCENTS:
            inner, at = _atom(tokens, at)
            return inner[:1] + ACCENTS[command] + inner[1:], at
        shown = SYMBOLS[command] if command in SYMBOLS else _greek(command)
        return f" {shown} " if command in BETWEEN else shown, at
    if sign == "{":
        inner, at = _group(tokens, at)
        return inner, at + 1
    if sign in "_^":
        inner, at = _atom(tokens, at)
        tag = "sub" if sign == "_" else "sup"
        return f"<{tag}>{inner}</{tag}>", at
    return {"-": "−", "'": "′", "~": " "}.get(sign, _escape(sign)), at


def _together(inner: str) -> str:
    """Something under one stroke, in brackets unless it is one thing."""
    return (
        inner if re.fullmatch(r"(\w|∞)(<su[bp]>[^<]*</su[bp]>)?|\d+", inner.strip()) else f"({inner.strip()})"
    )


# In claims and captions: x^2, T^{-1/2}, |S - S*|_F, W_V, s_{i,21}; a longer name such as n_test_loss is none.
SCRIPT = re.compile(
    r"(?<![\w_])((?:[A-Za-z]{1,5}|\d+|[|)\]])\*?'?)"
    r"((?:[_^](?:\{[^{}]*\}|\([^()]*\)|-?\d+(?:\.\d+)?(?![\w])|\*|[A-Za-z0-9]{1,5}(?![\w_])))+)"
)


def prose(text: str) -> str:
    """Plain words with their powers and indices as HTML.

    >>> prose("|S - S*|_F goes like T^{-1/2} & W_V, not n_test_loss")
    '|S − S*|<sub>F</sub> goes like T<sup>−1/2</sup> &amp; W<sub>V</sub>, not n_test_loss'
    """

    def scripts(match: re.Match[str]) -> str:
        found = match[1]
        for sign, body in re.findall(r"([_^])(\{[^{}]*\}|\([^()]*\)|-?[\d.]*\d|\*|[A-Za-z0-9]+)", match[2]):
            tag = "sub" if sign == "_" else "sup"
            found += f"<{tag}>{body.strip('{}').replace('-', '−')}</{tag}>"
        return found

    return SCRIPT.sub(scripts, _escape(text)).replace(" - ", " − ")
