"""Makes `.venv-torch` in the repository's root: Python 3.11 with the PyTorch that benchmarks compare to.

    python benchmarks/torch_environment.py

It does `python3.11 -m venv .venv-torch && .venv-torch/bin/pip install torch==2.13.0 numpy` and
nothing where that is already done.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-torch"
PACKAGES = ("torch==2.13.0", "numpy")
READY = """
import sys, numpy, torch
assert sys.version_info[:2] == (3, 11) and torch.__version__.split("+")[0] == "2.13.0"
"""

NO_PYTHON = """error: the PyTorch reference runs on Python 3.11, and no `python3.11` that works was found.
Install one beside your Python, then run this again:
  uv python install 3.11            (then: uv venv --seed --python 3.11 .venv-torch, and run this again)
  pyenv install 3.11                (with pyenv)
  apt install python3.11 python3.11-venv   (Debian 12)
The laboratory itself does not need it: only the benchmarks do."""


def works(command: list[str], **options) -> bool:
    """Whether a command ends well, silently."""
    try:
        return subprocess.run(command, capture_output=True, **options).returncode == 0
    except OSError:
        return False


def python311() -> str | None:
    """A Python 3.11 that can make virtual environments, as its real path.

    A pyenv shim follows `.python-version`, which says 3.12 here; it is asked for 3.11 explicitly.
    """
    named = shutil.which("python3.11")
    candidates = [sys.executable, *([named] if named else []), "/usr/bin/python3.11"]
    question = "import sys, ensurepip, venv; assert sys.version_info[:2] == (3, 11); print(sys.executable)"
    for environment in (os.environ, os.environ | {"PYENV_VERSION": "3.11"}):
        for candidate in candidates:
            if works([candidate, "-c", question], env=environment):
                return subprocess.run(
                    [candidate, "-c", question], env=environment, capture_output=True, text=True, check=True
                ).stdout.strip()
    return None


def main() -> int:
    python = FOLDER / "bin" / "python"
    if works([str(python), "-c", READY]):
        print(f"{FOLDER.name} is ready.", file=sys.stderr)
        return 0
    if not works([str(python), "-c", "import sys, pip; assert sys.version_info[:2] == (3, 11)"]):
        base = python311()
        if base is None:
            print(NO_PYTHON, file=sys.stderr)
            return 2
        subprocess.run([base, "-m", "venv", "--clear", str(FOLDER)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", *PACKAGES], check=True, stdout=sys.stderr)
    if not works([str(python), "-c", READY]):
        print(f"error: {FOLDER} does not hold Python 3.11 with {' '.join(PACKAGES)}.", file=sys.stderr)
        return 2
    print(f"{FOLDER.name} is ready.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
