"""Finds a browser for the tests of pages, or installs one; where neither works, says so and does not fail.

python tests/get_browser.py
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def found() -> str | None:
    """The path of a browser that is there: the system's, or playwright's own."""
    for name in NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright"
    own = sorted(Path(folder).glob("chromium-*/chrome-linux*/chrome"))
    return str(own[-1]) if own else None


def install() -> None:
    """Debian's chromium where one may install it, else playwright's."""
    attempts = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        apt = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
        attempts = [
            [*apt, "update"],
            [*apt, "install", "-y", "--no-install-recommends", "chromium"],
            *attempts,
        ]
    for command in attempts:
        if found() is None:
            calm = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(command, check=False, timeout=600, env=calm, capture_output=True)


if __name__ == "__main__":
    if found() is None:
        install()
    print(found() or "no browser is here and none could be installed: tests of pages will be skipped")
