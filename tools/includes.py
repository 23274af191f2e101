"""Checks which native folders include which; prints a line for each include that breaks a rule.

    .venv/bin/python tools/includes.py [FOLDER]

FOLDER is the folder of the native sources, native/ by default. The exit status is 1 if a rule is
broken. For every `#include "…"` these rules hold:

1. A folder includes only its own headers and those of the folders that MAY_INCLUDE lists for it.
   The table goes from the bottom to the top. Each folder lists only folders above it in the table,
   so there is no cycle between folders.
2. No header includes itself, directly or through other headers.
3. The included file lies beside the including file, or in native/ under the name given.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MAY_INCLUDE: dict[str, tuple[str, ...]] = {
    "common": (),
    # The allocators.
    "allocator/platform": (),
    "allocator/include": (),
    "allocator/core": ("allocator/platform",),
    "allocator/entry": ("allocator/platform", "allocator/core"),
    "allocator/exgen": ("allocator/platform", "allocator/include", "allocator/entry"),
    "allocator/reaper": ("allocator/include", "allocator/entry"),
    # The recorder and the reader of its files: neither includes the other, both include these two.
    "raw_format": (),
    "sample_choice": (),
    "recorder/include": (),
    "recorder": ("raw_format", "sample_choice", "recorder/include"),
    # Traces.
    "trace": ("common", "sample_choice"),
    "trace/raw": ("raw_format", "trace"),
    "model": ("sample_choice", "trace"),
    "replay": ("common", "trace"),
    "trace_tool": ("trace", "trace/raw", "model", "replay"),
    # Programs by themselves.
    "meter": ("common",),
    "diagnose": ("allocator/core", "meter"),
    "benchmarks": (),
    "nomain": (),
    "no_huge_pages": (),
}
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def includes_of(source: Path, root: Path) -> list[tuple[int, str, Path | None]]:
    """Lists the quoted includes of a source file.

    Returns:
        For each its line number, its words and the file it means; None in place of a file that does not exist.
    """
    found = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        if match := _INCLUDE.match(line):
            places = (source.parent / match[1], root / match[1])
            found.append((number, match[1], next((p.resolve() for p in places if p.is_file()), None)))
    return found


def table_problems(table: dict[str, tuple[str, ...]]) -> list[str]:
    """Checks that each folder of the table lists only folders above it."""
    problems = []
    above: set[str] = set()
    for folder, others in table.items():
        problems += [
            f"tools/includes.py: MAY_INCLUDE lists {other} for {folder}, but not above it"
            for other in others
            if other not in above
        ]
        above.add(folder)
    return problems


def cycles(graph: dict[str, list[tuple[int, str]]]) -> list[str]:
    """Finds the includes by which a header includes itself.

    Args:
        graph: For each file its includes: the line number, and the file that is included.

    Returns:
        One line for each cycle, at the include that closes it.
    """
    problems = []
    done: set[str] = set()

    def visit(file: str, path: list[str]) -> None:
        path.append(file)
        for line, other in graph.get(file, []):
            if other in path:
                circle = " -> ".join([*path[path.index(other) :], other])
                problems.append(f"{file}:{line}: headers include each other: {circle}")
            elif other not in done:
                visit(other, path)
        path.pop()
        done.add(file)

    for file in sorted(graph):
        if file not in done:
            visit(file, [])
    return problems


def check(root: Path, table: dict[str, tuple[str, ...]] | None = None) -> list[str]:
    """Checks all sources below a folder.

    Args:
        root: The folder of the native sources; its subfolders are the layers.
        table: For each folder those it may include, from the bottom to the top; MAY_INCLUDE by default.

    Returns:
        One line for each include that breaks a rule.
    """
    table = MAY_INCLUDE if table is None else table
    root = root.resolve()
    problems = table_problems(table)
    graph: dict[str, list[tuple[int, str]]] = {}
    for source in sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cpp", ".c"}):
        folder = source.parent.relative_to(root).as_posix()
        name = source.relative_to(root).as_posix()
        if folder not in table:
            problems.append(f"{name}: MAY_INCLUDE in tools/includes.py does not list the folder {folder}")
            continue
        graph[name] = []
        for line, words, target in includes_of(source, root):
            if target is None or not target.is_relative_to(root):
                problems.append(f'{name}:{line}: "{words}" is neither beside this file nor below {root.name}/')
                continue
            other = target.parent.relative_to(root).as_posix()
            graph[name].append((line, target.relative_to(root).as_posix()))
            if other != folder and other not in table[folder]:
                problems.append(f'{name}:{line}: "{words}": {folder} may not include {other}')
    return problems + cycles(graph)


def main() -> int:
    """Checks the folder given on the command line."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "native"
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
