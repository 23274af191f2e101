"""Counts the instructions of the hot paths of malloc and free and compares them with hot_path.golden.

A commit that changes the counts must change the golden file too. The hot path is the path from the first instruction to
`ret` on which no conditional branch is taken. BARS are upper limits.
"""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import bundled

GOLDEN = Path(__file__).with_name("hot_path.golden")
SYMBOLS = {"malloc": "malloc", "free": "free", "operator new": "_Znwm", "operator delete": "_ZdlPv"}
# (instructions, loads, conditional branches) at most. reaper must find its thread's heap (three
# instructions more than exgen in malloc), and compare the block's owner (six more in free).
TAKES, GIVES = (13, 3, 2), (16, 5, 2)
REAPER_TAKES, REAPER_GIVES = (16, 5, 2), (22, 8, 3)
BARS = {
    "exgen malloc": TAKES,
    "exgen free": GIVES,
    "exgen operator new": TAKES,
    "exgen operator delete": GIVES,
    "reaper malloc": REAPER_TAKES,
    "reaper free": REAPER_GIVES,
    "reaper operator new": REAPER_TAKES,
    "reaper operator delete": REAPER_GIVES,
}
LONGEST = 200  # instructions: a longer path does not end

pytestmark = [
    needs.only_where(platform.machine() == "x86_64", "run x86-64 code, whose listing is read"),
    needs.with_command("objdump"),
]


@dataclass(frozen=True)
class Instruction:
    """One line of the listing."""

    address: int
    name: str
    operands: tuple[str, ...]
    text: str

    def uses(self) -> tuple[bool, bool]:
        """Whether it loads, and whether it stores."""
        if self.name.startswith(("lea", "nop", "j", "call", "ret", "endbr")):
            return False, False
        if self.name.startswith(("push", "pop")):
            return self.name.startswith("pop"), self.name.startswith("push")
        in_memory = ["(" in operand for operand in self.operands]
        compares = self.name.startswith(("cmp", "test"))
        moves = self.name.startswith("mov")
        last = bool(in_memory) and in_memory[-1]
        return any(in_memory[:-1]) or (last and not moves), last and not compares


@dataclass(frozen=True)
class HotPath:
    """The hot path of one function."""

    instructions: tuple[Instruction, ...]

    def counts(self) -> tuple[int, int, int, int]:
        """Instructions, loads, stores, conditional branches."""
        uses = [one.uses() for one in self.instructions]
        branches = sum(one.name.startswith("j") and one.name != "jmp" for one in self.instructions)
        return len(self.instructions), sum(a for a, _ in uses), sum(b for _, b in uses), branches

    def listing(self) -> str:
        """For people, with what each instruction was counted as."""
        marks = {(True, True): "load store", (True, False): "load", (False, True): "store", (False, False): ""}
        return "\n".join(f"  {marks[one.uses()]:10} {one.text}" for one in self.instructions)


def run(*words: str | Path) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def hot_path(library: Path, symbol: str) -> HotPath:
    """Follows a function from its first instruction to `ret`."""
    listing: dict[int, Instruction] = {}
    for line in run("objdump", "-d", "--no-show-raw-insn", "-w", library).splitlines():
        if found := re.match(r"\s+([0-9a-f]+):\s+(?:(?:bnd|notrack|lock|rep) )*(\w+)\s*([^#<]*)", line):
            operands = tuple(re.findall(r"[^,(]*\([^)]*\)|[^,]+", found[3].strip()))
            at = int(found[1], 16)
            listing[at] = Instruction(at, found[2], operands, line.split(":", 1)[1].strip())
    following = dict(zip(listing, [*listing][1:], strict=False))
    symbols = re.findall(r"^([0-9a-f]+) .* (\S+)$", run("objdump", "-T", library), re.MULTILINE)
    at = next(int(address, 16) for address, name in symbols if name == symbol)
    path: list[Instruction] = []
    while len(path) < LONGEST:
        path.append(listing[at])
        if path[-1].name.startswith("ret"):
            return HotPath(tuple(path))
        at = int(path[-1].operands[0], 16) if path[-1].name == "jmp" else following[at]
    raise AssertionError(f"{symbol}: no ret in {LONGEST} instructions\n{HotPath(tuple(path)).listing()}")


def golden() -> dict[str, tuple[int, ...]]:
    """The counts of the golden file."""
    rows = [line.rsplit(maxsplit=4) for line in GOLDEN.read_text().splitlines() if line and not line.startswith("#")]
    return {name.strip(): tuple(map(int, counts)) for name, *counts in rows}


def test_the_golden_file_is_within_the_bars() -> None:
    assert golden().keys() == BARS.keys()
    for name, (instructions, loads, _, branches) in golden().items():
        assert all(is_ <= bar for is_, bar in zip((instructions, loads, branches), BARS[name], strict=True)), name


@pytest.mark.parametrize("name", BARS)
def test_the_hot_path_is_the_golden_one(name: str) -> None:
    allocator, function = name.split(maxsplit=1)
    library = bundled(allocator)
    if library is None:
        needs.not_built(f"lib{allocator}.so")
    path = hot_path(library, SYMBOLS[function])
    row = f"{name:23} {' '.join(f'{count:3}' for count in path.counts())}"
    assert path.counts() == golden()[name], (
        f"{name} has another hot path than {GOLDEN.name} says. If it is meant to, put this there:\n{row}\n"
        f"{library}:\n{path.listing()}"
    )


def test_loads_and_stores_are_counted_as_by_hand() -> None:
    """By hand: a load, a store, both, a comparison with memory, and what only computes an address."""
    for text, expected in {
        ("mov", "(%rax)", "%rdx"): (True, False),
        ("movzwl", "0x490(%rdx,%rax,2)", "%eax"): (True, False),
        ("mov", "%rdx", "(%rdi)"): (False, True),
        ("mov", "%rdx", "%rdi"): (False, False),
        ("subl", "$0x1", "0x8(%rax)"): (True, True),
        ("cmp", "0x9bd5(%rip)", "%rax"): (True, False),
        ("cmpl", "$0x1", "0x8(%rax)"): (True, False),
        ("lea", "0xf(%rdi)", "%rax"): (False, False),
        ("push", "%rbx"): (False, True),
    }.items():
        assert Instruction(0, text[0], text[1:], "").uses() == expected, text
