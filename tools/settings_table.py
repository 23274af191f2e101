"""Writes docs/settings.md: every setting of every allocator and runtime, from the parameter-space files.

Run `.venv/bin/python tools/settings_table.py >docs/settings.md`; `make docs` does it.
"""

from __future__ import annotations

from paragraph import paragraph

from heapwright.allocators.huge_pages import process_space
from heapwright.allocators.registry import bundled_names, bundled_space
from heapwright.allocators.runtimes import shipped_runtimes
from heapwright.allocators.space_spec import ParamSpec, SpaceFile, shares_variable, variable_of

HEAD = """\
# Every setting that heapwright knows

Made by `tools/settings_table.py` from `src/heapwright/allocators/spaces/*.toml` and
`runtimes/*.toml`; the columns are explained in [spaces.md](spaces.md). `heapwright allocators`
shows what applies to the libraries of one machine.
"""


def _span(spec: ParamSpec) -> str:
    """The values a search tries."""
    if spec.type != "int":
        since = spec.values_since
        return ", ".join(f"{v} (from {since[v]})" if v in since else v for v in map(str, spec.values or [1, 0]))
    powers = {0.5: "half powers of two", 1.0: "powers of two", 2.0: "powers of four"}
    linear = f"steps of {spec.step:g}" if spec.scale == "linear" else "all"
    step = powers[spec.step] if spec.scale == "log2" else linear
    high = f"{spec.high_per_core} x cores" if spec.high_per_core else str(spec.high)
    special = f"{', '.join(map(str, spec.specials))}; " if spec.specials else ""
    unit = spec.unit if spec.unit == "%" else f" {spec.unit}"
    return f"{special}{spec.low} … {high}{unit}".rstrip() + f", {step}"


def _when(spec: ParamSpec) -> str:
    """The conditions under which a search varies the setting."""
    parts = [f"from {spec.requires.since}"] if spec.requires.since else []
    parts += [f"before {spec.requires.before}"] if spec.requires.before else []
    parts += ["threads"] if spec.requires.threads else []
    parts += [f"gate {spec.gate}"] if spec.gate else []
    parts += [f"not with {key}={'/'.join(map(str, values))}" for key, values in spec.unless.items()]
    for value, states in spec.values_thp.items():
        whose = f"{value}: " if len(spec.values_thp) > 1 else ""
        parts.append(f"{whose}THP {' or '.join(states)}")
    parts += ["no pool of huge pages"] if spec.requires.without_pool else []
    parts += ["`--expert`"] if spec.safe == "expert" else []
    return ", ".join(parts)


def _written(file: SpaceFile) -> str:
    spec = file.param[0]
    if not any(shares_variable(file.allocator, one) for one in file.param):
        return f"A variable for each, such as `{variable_of(file.allocator, spec)}`."
    pair = file.allocator.pair.format(key="KEY", value="VALUE")
    return f"In `{file.allocator.env}` as `{pair}`, joined by `{file.allocator.join}`."


def _print_file(title: str, file: SpaceFile) -> None:
    """Prints the section of one file."""
    print(f"## {title}\n\n{_written(file)}\n")
    print("| setting | values searched | unset means | when | effect |\n|---|---|---|---|---|")
    for spec in file.param:
        if spec.safe != "no":
            below, above = spec.hazard_below, spec.hazard_above
            where = f"Below {below}: " if below is not None else f"Above {above}: " if above is not None else ""
            hazard = f" **{where}{spec.hazard}**" if spec.hazard else ""
            print(f"| `{spec.key}` | {_span(spec)} | {spec.default} | {_when(spec)} | {spec.explain}{hazard} |")
    never = [f"`{s.key}` ({s.hazard})" for s in file.param if s.safe == "no"]
    print("\n" + paragraph(f"Never searched: {', '.join(never)}.") + "\n" if never else "")


def main() -> None:
    """Prints the page."""
    print(HEAD)
    for name in bundled_names():
        _print_file(name, bundled_space(name))
    print(
        paragraph(
            "snmalloc, rpmalloc, hoard and google-tcmalloc have nothing to set at run time that a search could use."
        )
    )
    print()
    _print_file("The process itself", process_space())
    for file in shipped_runtimes():
        assert file.runtime is not None
        _print_file(f"{file.runtime.title} (runtime `{file.runtime.name}`)", file)


if __name__ == "__main__":
    main()
