"""Watchers: what is told about work in progress."""

from collections.abc import Sequence


class Watcher:
    """What is told about work in progress; the command line shows it."""

    def begin(self, label: str, steps: int, seeds: int, cells: int = 1) -> None:
        """Some cells start together, or go on."""

    def recorded(self, steps: Sequence[int], loss: str) -> None:
        """They are recorded at these steps; `loss` names the probe that is their training loss."""

    def progress(self, step: int, loss: float) -> None:
        """They have reached a step."""

    def end(self) -> None:
        """They are whole."""

    def drop(self) -> None:
        """They were given up."""

    def say(self, message: str) -> None:
        """Something worth a line."""
