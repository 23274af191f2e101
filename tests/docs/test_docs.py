"""Tests the documentation: commands are accepted, marked ones run, links have targets, and the text is current."""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.cli.main import build_parser
from tests.markdown import headings, links

from .commands import PAGES, ROOT, Command, commands, scripts

BIN = Path(sys.executable).parent
COMMANDS = [c for page in PAGES for c in commands(page)]
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]


@functools.cache
def parser() -> argparse.ArgumentParser:
    return build_parser()


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) > 60
    assert {"README.md", "docs/tutorial.md"} <= {str(c.page.relative_to(ROOT)) for c in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_commands_are_accepted(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb exists and takes these options and values, and a command after `--` if there is one."""
    words, target = command.words, False
    if "--" in words:
        words, target = words[: words.index("--")], True
    words = [w for w in words if w not in ("...", "…")]
    try:
        args = parser().parse_args(words)
    except SystemExit as ended:
        if ended.code:
            pytest.fail(capsys.readouterr().err)
        return  # --help
    assert not target or getattr(args, "takes_command", False), "it takes no command"


@pytest.mark.parametrize("page", [p for p in PAGES if scripts(p)], ids=lambda p: p.stem)
@pytest.mark.long
def test_marked_commands_run(page: Path, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GLIBC_TUNABLES", "HEAPWRIGHT_"))}
    env["PATH"] = f"{BIN}:{env['PATH']}"
    done = subprocess.run(
        ["sh", "-eu"], input=scripts(page), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if page.stem == "tutorial":
        (study,) = json.loads((tmp_path / "words.json").read_text())["studies"]
        assert study["phase"] == "done"
        assert study["claim"] in " ".join(done.stdout.split()) or study["claim"] in done.stdout.replace("\n", " ")
        assert "30000" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    found = set()
    for heading in headings(page):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(re.sub(r"[\s-]+", "-", plain.strip()))
    return found


def test_reference_pages_are_what_the_code_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/reference.py", tmp_path], check=True)
    pages = {p.relative_to(tmp_path): p.read_text(encoding="utf-8") for p in tmp_path.rglob("*.md")}
    assert len(pages) == 8
    for page, text in pages.items():
        assert text == (ROOT / "docs" / page).read_text(encoding="utf-8"), "'make docs' brings it up to date"


def test_the_formats_have_the_versions_of_the_code() -> None:
    page = (ROOT / "docs/trace-format.md").read_text()
    raw = re.search(r"kVersion = (\d+);", (ROOT / "native/raw_format/format.h").read_text())
    packed = re.search(r"kPackedVersion = (\d+);", (ROOT / "native/trace/packed_format.h").read_text())
    assert raw is not None
    assert packed is not None
    assert re.findall(r"\| version \((\d+)\)", page) == [raw[1]]
    listed = re.search(r"u16 version \(([^)]*)\)", page)
    assert listed is not None
    assert re.findall(r"\d+", listed[1])[-1] == packed[1]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {str(p.relative_to(ROOT / "docs")) for p in PAGES if "docs" in p.relative_to(ROOT).parts}


@pytest.mark.parametrize("root", ["native", "native/allocator", "src/heapwright"])
def test_the_architecture_names_every_folder(root: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = subprocess.run(["git", "ls-tree", "-d", "--name-only", f"HEAD:{root}"], cwd=ROOT, capture_output=True)
    folders = listed.stdout.decode().split()
    assert folders
    assert [name for name in folders if f"{name}/" not in text] == []


def test_the_manual_and_completion_know_every_verb(tmp_path: Path) -> None:
    from heapwright.cli.parser import verbs_of

    names = set(verbs_of(build_parser()))
    manual = subprocess.run(
        [
            *(BIN / "argparse-manpage", "--module", "heapwright.cli.main", "--function", "build_parser"),
            *("--prog", "heapwright", "--project-name", "heapwright", "--format", "single-commands-section"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert names <= set(re.findall(r"heapwright (?:\\fI)?([\w-]+)", manual.replace("\\-", "-")))
    script = tmp_path / "completion"
    script.write_text(subprocess.run([BIN / "heapwright", "completion", "bash"], capture_output=True, text=True).stdout)
    for typed, expected in (("'' ", names), ("tune --bud", {"--budget"}), ("measure --meter p", {"ptrace", "poll"})):
        words = ["heapwright", *typed.replace("'' ", " ").split(" ")][: 1 + len(typed.split(" "))]
        words = ["heapwright", ""] if typed == "'' " else words
        shell = (
            f"source {script}; COMP_WORDS=({' '.join(w or repr('') for w in words)}); COMP_CWORD={len(words) - 1};"
            f" _shtab_heapwright heapwright '{words[-1]}' '{words[-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
        assert expected <= set(done.stdout.split()), (typed, done.stderr)
