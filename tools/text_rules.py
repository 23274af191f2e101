"""Checks rules on text that no other linter knows; `make lint` runs it from the root of the repository.

- Plain English: at most `MAX_CLAUSES` places with a question word and a verb, often a clause in place of a noun.
- Size: no source file or page above `MAX_LINES` lines.
- Width: no prose line of a page above `MAX_WIDTH` columns, if it could be broken outside of code.
- Per cent: no space between a number and its sign in a page ('5%').
- Docstrings: a public function of the package with more than two parameters names each of them.

    tools/text_rules.py           one line for each violation; exit status 1 if there is any
    tools/text_rules.py --list    also every place that the first rule counts
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_CLAUSES = 99
MAX_LINES = 450
MAX_WIDTH = 100
_FOLDERS = ("native", "src", "tests", "docs", "tools")
_SUFFIXES = (".cpp", ".h", ".c", ".py", ".md", ".toml")
_SUBJECTS = "what who whose whoever whatever"
_VERBS = "is are was has had goes comes came it they that one no other others a an the"
_CLAUSE = re.compile(
    r"\b({})\s({})\b".format(
        "|".join(f"[{w[0].upper()}{w[0]}]{w[1:]}" for w in _SUBJECTS.split()), "|".join(_VERBS.split())
    )
)


def files() -> list[Path]:
    """The files of the repository that the rules hold for, but for the width of pages."""
    listed = subprocess.run(["git", "ls-files", *_FOLDERS], capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.splitlines() if name.endswith(_SUFFIXES) and Path(name).is_file()]


def clauses(path: Path) -> Iterator[str]:
    """The places in a file that the first rule counts, as 'path:line: text'."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        for _ in _CLAUSE.finditer(line):
            yield f"{path}:{number}: {line.strip()}"


def wide(path: Path) -> Iterator[str]:
    """The lines of a Markdown page that break the third rule. Tables, code, pictures and HTML may be wide."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        fenced ^= text.startswith(("```", "~~~"))
        if len(line) <= MAX_WIDTH or fenced or line.startswith("    ") or text.startswith(("|", "<", "#", "![")):
            continue
        words = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "_"), text).split()
        if len(line) - len(text) + len(words[0]) <= MAX_WIDTH and len(words) > 1:
            yield f"{path}:{number}: {len(line)} columns, at most {MAX_WIDTH} are allowed"


def spaced_per_cent(path: Path) -> Iterator[str]:
    """The lines of a Markdown page with a space before a per cent sign, or with the sign on the next line."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        prose = re.sub(r"[*/] ?\d+ % ", "", line)  # not a remainder
        if re.search(r"(^|[\d}])\s+%([\s.,;:)|]|$)", prose):
            yield f"{path}:{number}: a space before a per cent sign: {line.strip()}"


def undocumented(path: Path) -> Iterator[str]:
    """Public functions in a module whose docstring does not name all of more than two parameters."""
    for function in _public_functions(ast.parse(path.read_text())):
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        names = names[names[:1] in (["self"], ["cls"]) :]
        text = ast.get_docstring(function) or ""
        missing = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]
        if len(names) > 2 and missing:
            yield f"{path}:{function.lineno}: the docstring of {function.name} does not name {', '.join(missing)}"


def _public_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods without a leading underscore, outside of other functions and private classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_"):
                yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public_functions(node)


def main() -> int:
    """Prints the violations."""
    found = files()
    places = [place for path in found for place in clauses(path)]
    problems = [
        f"{path}: {count} lines, at most {MAX_LINES} are allowed: split it by concepts"
        for path in found
        if "/data/" not in str(path) and (count := len(path.read_text(errors="replace").splitlines())) > MAX_LINES
    ]
    pages = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
    problems += [line for name in pages.splitlines() for rule in (wide, spaced_per_cent) for line in rule(Path(name))]
    modules = [path for path in found if path.parts[0] == "src" and path.suffix == ".py"]
    problems += [line for path in modules for line in undocumented(path)]
    if len(places) > MAX_CLAUSES:
        problems.append(
            f"{len(places)} places have a clause (question word and verb) that may stand for a noun, at most"
            f" {MAX_CLAUSES} are allowed: name the thing (CONTRIBUTING.md); --list shows them"
        )
    if "--list" in sys.argv[1:]:
        print("\n".join(places), end="\n" if places else "")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
