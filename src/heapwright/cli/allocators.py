"""`heapwright allocators`: lists the installed allocators and their settings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.terminal_text import console, tell, visible, warn

if TYPE_CHECKING:
    from heapwright.allocators.space_spec import ParamSpec, SpaceFile

_EPILOG = """\
example:
  heapwright allocators --json - | python3 -m json.tool
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "allocators",
        help="list allocators, runtimes and their settings",
        description="Lists the allocators on this machine and the runtimes that heapwright knows, with every setting"
        " that it can search.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--expert", action="store_true", help="include settings that can slow down or break a program")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    import os

    from heapwright.allocators.peers import known_peers
    from heapwright.allocators.registry import find_allocators
    from heapwright.allocators.runtimes import shipped_runtimes
    from heapwright.allocators.user_settings import environment_problems

    found = list({a.name: a for a in find_allocators().values()}.values())  # 'mimalloc' is another name for one of them
    problems = environment_problems(os.environ)
    rows = []
    for allocator in found:
        space = allocator.space(threads=True, expert=args.expert)
        parameters: list[dict[str, Any]] = [
            {
                "key": p.key,
                "type": p.spec.type,
                "unit": p.spec.unit,
                "default": p.spec.default,
                "levels": list(p.levels),
                "specials": p.specials,
                "gate": p.spec.gate or None,
                "unless": p.spec.unless or None,
                "threads": p.spec.requires.threads,
                "explain": p.spec.explain,
                "hazard": p.spec.hazard or None,
            }
            for p in space.params
        ]
        skipped = [{"key": k, "why": w} for k, w in space.skipped]
        rows.append(
            {
                "name": allocator.name,
                "version": allocator.version,
                "path": allocator.path,
                "bundled": allocator.bundled,
                "searched": allocator.ordinary,
                "preload": allocator.preload or None,
                "parameters": parameters,
                "not_searched": skipped,
            }
        )
    runtimes = [_runtime_row(file) for file in shipped_runtimes()]
    known = {allocator.name for allocator in found}
    missing = [{"name": s.name, "remedy": s.how_to_get} for s in known_peers() if s.name not in known]
    if args.json:
        write_json(args.json, {"allocators": rows, "missing": missing, "runtimes": runtimes, "environment": problems})
    if not args.quiet and args.json != "-":
        _print(rows)
        for row in missing:
            tell(f"{row['name']} is not on this machine ({row['remedy']})")
        _print_runtimes(runtimes)
    for trouble in problems:
        warn(trouble)
    return 0


def _runtime_row(file: SpaceFile) -> dict[str, Any]:
    """A runtime's settings in all its versions, as in JSON."""
    from heapwright.allocators.space_spec import shares_variable, variable_of

    def row(spec: ParamSpec) -> dict[str, Any]:
        return {
            "key": spec.key,
            "variable": variable_of(file.allocator, spec),
            "own_variable": not shares_variable(file.allocator, spec),
            "type": spec.type,
            "unit": spec.unit,
            "default": spec.default,
            "values": [str(v) for v in (*spec.specials, *spec.values)],
            "low": spec.low,
            "high": spec.high,
            "high_per_core": spec.high_per_core,
            "since": {**spec.values_since, **({"": spec.requires.since} if spec.requires.since else {})},
            "before": spec.requires.before or None,
            "safe": spec.safe,
            "explain": spec.explain,
            "hazard": spec.hazard or None,
        }

    runtime = file.runtime
    assert runtime is not None
    return {
        "name": runtime.name,
        "title": runtime.title,
        "source": runtime.source or None,
        "parameters": [row(spec) for spec in file.param],
    }


def _print_runtimes(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    for row in rows:
        out.print(Text.assemble((row["title"], "bold"), "  a runtime; 'heapwright doctor -- COMMAND' recognises it"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("setting", "values", "default", "effect"):
            table.add_column(heading, overflow="fold")
        for p in row["parameters"]:
            since = p["since"]
            values = [f"{v} (from {since[v]})" if v in since else v for v in p["values"]]
            high = p["high"] if p["high_per_core"] is None else f"{p['high_per_core']} x cores"
            span = [*values, *([f"{p['low']} … {high}"] if p["low"] is not None else [])]
            safe = {"expert": "\nonly with --expert", "no": "\nnever searched"}.get(p["safe"], "")
            version = f"\nfrom {since['']}" if "" in since else ""
            name = p["variable"] if p["own_variable"] else f"{p['key']}\nin {p['variable']}"
            table.add_row(f"{name}{version}{safe}", ", ".join(span), p["default"], p["explain"])
        out.print(table)


def _ends(levels: list[str]) -> list[str]:
    """Return the ends of a range of levels, as one text; up to two levels as they are."""
    return [f"{levels[0]} … {levels[-1]}"] if len(levels) > 2 else levels


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    if not rows:
        out.print("heapwright found no allocator that it can tune: the C library of this system is not glibc.")
    for row in rows:
        where = "comes with heapwright" if row["bundled"] else row["path"] or ""
        out.print(Text.assemble((row["name"], "bold"), f" {row['version'] or 'n/a'}  {visible(where)}"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("setting", "range", "default", "effect"):
            table.add_column(heading, overflow="fold")
        for p in row["parameters"]:
            span = ", ".join([*p["levels"][: p["specials"]], *_ends(p["levels"][p["specials"] :])])
            table.add_row(p["key"], span, p["default"], p["explain"])
        out.print(table)
        if row["not_searched"]:
            out.print("not searched here:")
        for skipped in row["not_searched"]:
            out.print(f"  {skipped['key']}: {skipped['why']}")
