"""Plug-in functions: a setting may name one that its paper knows, or any other as module:function.

>>> chosen("law", "math:sqrt", {})(4.0)
2.0
"""

import contextlib
import hashlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from descentlab.errors import SettingError


def chosen(field: str, name: str, known: Mapping[str, Callable]) -> Callable[..., Any]:
    """The function that a setting names; a SettingError that says what is allowed if there is none."""
    if name in known:
        return known[name]
    module, colon, function = name.partition(":")
    reason = ""
    try:
        if module and colon:
            found = getattr(importlib.import_module(module), function)
            if not callable(found):
                raise TypeError(f"{function} of {module} is not a function")
            return found
    except (ImportError, AttributeError, TypeError) as error:
        reason = f" ({error})"
    raise SettingError(
        f"{field} takes one of {', '.join(known)}, or your own as module:function; "
        f"got {field}={name}{reason}."
    )


def fingerprint(name: str, known: Mapping[str, Callable]) -> str:
    """A hash of the source of a plug-in function, so that changing it makes another run."""
    if name in known:
        return ""
    found = chosen("setting", name, known)
    named = importlib.import_module(name.partition(":")[0])
    # The module that is named, and the one the function comes from where that is another.
    source = name
    for module in dict.fromkeys([named, inspect.getmodule(found) or named]):
        with contextlib.suppress(OSError, TypeError):  # written in C, or at a prompt
            source += inspect.getsource(module)
    return hashlib.sha256(source.encode()).hexdigest()[:16]
