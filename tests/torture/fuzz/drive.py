"""Runs libFuzzer on a Python target: python -m tests.torture.fuzz.drive TARGET [libFuzzer's options and folders]."""

from __future__ import annotations

import sys


def main() -> None:
    """Instruments heapwright and its parser libraries, and runs until libFuzzer ends."""
    import atheris  # type: ignore[import-untyped]  # only for the long form; not available for every Python

    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["heapwright", "elftools"]):
        from tests.torture.fuzz.targets import TARGETS
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
