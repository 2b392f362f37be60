r"""Matplotlib's mathematics as the little HTML that interactive plots take.

>>> html(r"$\|W_V - V^\ast\|_F$ at $10^{-3}$")
'‖W<sub>V</sub> − V<sup>∗</sup>‖<sub>F</sub> at 10<sup>−3</sup>'
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from html import escape
from typing import Any

# Those that stand between two things have room on both sides.
SYMBOLS = {
    "varepsilon": "ε", "varphi": "φ", "ell": "ℓ", "infty": "∞", "partial": "∂", "nabla": "∇", "pm": " ± ",
    "times": " × ", "cdot": "·", "ast": "∗", "star": "⋆", "leq": " ≤ ", "le": " ≤ ", "geq": " ≥ ",
    "ge": " ≥ ", "neq": " ≠ ", "approx": " ≈ ", "propto": " ∝ ", "sim": " ∼ ", "to": " → ",
    "rightarrow": " → ", "langle": "⟨", "rangle": "⟩", "prime": "′", "in": " ∈ ", "sum": "Σ", "prod": "Π",
    "|": "‖", "mid": "|", "top": "⊤", "dots": "…", "ldots": "…", "cdots": "⋯", "odot": "⊙", "lambda": "λ",
    "Lambda": "Λ", ",": "\u2009", ";": "\u2009", ":": "\u2009", " ": " ", "quad": " ", "!": "",
}  # fmt: skip
ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303", "vec": "\u20d7", "dot": "\u0307"}
STYLE = re.compile("math(rm|bf|cal|it|bb|default)|text|operatorname|left|right|big|Big")
_escape = partial(escape, quote=False)
Token = tuple[Any, ...]  # a command without its backslash, or a sign
CLOSE: Token = (None, "}")
TOKEN = re.compile(r"\\([A-Za-z]+|.)\s*|([{}_^]|.)", re.DOTALL)


def html(text: str) -> str:
    """A label with its formulas as HTML; what stands between dollars is mathematics."""
    parts = enumerate(str(text).split("$"))
    return "".join(_formula(part) if i % 2 else _escape(part).replace("\n", "<br>") for i, part in parts)


def _greek(name: str) -> str:
    """A Greek letter by its name; any other word, such as log, stays as it is."""
    size = "CAPITAL" if name[:1].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {name.upper()}")
    except KeyError:
        return name


def _formula(source: str) -> str:
    tokens = (match.groups() for match in TOKEN.finditer(source))
    return re.sub(" +", " ", _group(tokens))


def _group(tokens: Iterator[Token]) -> str:
    """What stands up to the brace that closes, or to the end."""
    found = ""
    while (token := next(tokens, CLOSE)) != CLOSE:
        found += _atom(token, tokens)
    return found


def _atom(token: Token, tokens: Iterator[Token]) -> str:
    """A token with what belongs to it of those that follow: the inside of a brace, what a command takes."""
    command, sign = token
    if command is None:
        if sign == "{":
            return _group(tokens)
        if sign in "_^":
            tag = "sub" if sign == "_" else "sup"
            return f"<{tag}>{_atom(next(tokens), tokens)}</{tag}>"
        return {"-": "−", "'": "′", "~": " "}.get(sign, _escape(sign))
    if STYLE.fullmatch(command):
        return ""
    if command == "frac":
        return f"{_together(_atom(next(tokens), tokens))}/{_together(_atom(next(tokens), tokens))}"
    if command == "sqrt":
        return f"√{_together(_atom(next(tokens), tokens))}"
    if command in ACCENTS:
        inner = _atom(next(tokens), tokens)
        return inner[:1] + ACCENTS[command] + inner[1:]
    return SYMBOLS[command] if command in SYMBOLS else _greek(command)


def _together(inner: str) -> str:
    """Something under one stroke, in brackets unless it is one thing."""
    inner = inner.strip()
    return inner if re.fullmatch(r"(\w|∞)(<su[bp]>[^<]*</su[bp]>)?|\d+", inner) else f"({inner})"


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
