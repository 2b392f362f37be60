"""What commands print."""

import json
import sys
from typing import Any, NoReturn


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(document, indent=1, allow_nan=False))


def fail(message: str, code: int) -> NoReturn:
    """Ends with a message and an exit code."""
    print(message, file=sys.stderr)
    raise SystemExit(code)
