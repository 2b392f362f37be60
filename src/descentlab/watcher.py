"""Watchers: what is told about work in progress."""


class Watcher:
    """What is told about work in progress; the command line shows it."""

    def begin(self, label: str, steps: int, seeds: int) -> None:
        """A task starts, or goes on."""

    def progress(self, step: int, loss: float) -> None:
        """A task has reached a step."""

    def end(self) -> None:
        """A task is whole."""

    def say(self, message: str) -> None:
        """Something worth a line."""
