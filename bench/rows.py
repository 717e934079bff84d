"""Rows of a limits file that a command line selects."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


def asked(rows: Iterable[str], module: str, description: str, file: str) -> list[str]:
    """Rows on the command line, or all. Exits if one is not in the file."""
    known = list(rows)
    parser = argparse.ArgumentParser(f"python -m {module}", description=description)
    parser.add_argument("row", nargs="*", help=f'a row of {file}, such as "{known[0]}"; else all')
    named = parser.parse_args().row or known
    if unknown := set(named) - set(known):
        parser.error(f"not in {file}: {', '.join(sorted(unknown))}")
    return named
