"""Errors that a user can mend: the command line prints one line and exits with their code."""

COMPUTES_NOTHING = True  # changes here leave the names of runs (papers/_code.py)


class UserError(Exception):
    """What is wrong and what to do, in one line."""

    exit_code = 1


class SettingError(UserError, ValueError):
    """A name that does not exist, or a value that is not taken."""

    exit_code = 2


class PaperError(UserError, TypeError):
    """A module that is not a paper; the message says what it lacks."""


class StoreError(UserError, RuntimeError):
    """An entry of the store that is damaged, truncated or foreign; the message names it."""


class RunError(UserError, RuntimeError):
    """A run that raised; the message has its error, the store its trace (failed.json)."""


class DataError(UserError, RuntimeError):
    """A file of a data set that is missing, damaged or cannot be fetched; the message names it."""
