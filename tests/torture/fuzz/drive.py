"""libFuzzer over a Python target: python -m tests.torture.fuzz.drive TARGET [options and folders of libFuzzer]."""

from __future__ import annotations

import sys


def main() -> None:
    """Instruments heapwright and what it parses with, and runs until libFuzzer says so."""
    import atheris  # type: ignore[import-untyped]  # for the long form alone, and not on every Python

    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["heapwright", "elftools"]):
        from tests.torture.fuzz.targets import TARGETS
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
