"""Loops over arrays, compiled by numba."""

from collections.abc import Callable
from inspect import unwrap
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable)


def compiled(function: Function) -> Function:
    """A function compiled at its first call, or loaded from disk where a cache can be written."""
    plain = unwrap(function)  # without run-time type checks
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(plain))
    except RuntimeError:  # no writable place for the cache
        return cast(Function, numba.njit(nogil=True)(plain))
