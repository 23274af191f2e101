"""Help fits a terminal, whatever its width; examples stay as they are, to be copied."""

from __future__ import annotations

import pytest

from heapwright.cli.main import build_parser
from heapwright.cli.parser import verbs_of


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("verb", ["", *verbs_of(build_parser())])
def test_paragraphs_of_help_fit_the_terminal(verb: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    parser = build_parser()
    text = (verbs_of(parser)[verb] if verb else parser).format_help()
    examples = [line for line in text.splitlines() if line.startswith("  ") and "heapwright" in line]
    assert examples
    for line in text.splitlines():
        assert line in examples or len(line) <= width or not line[0].isalpha(), line


@pytest.mark.parametrize("verb", verbs_of(build_parser()))
def test_every_option_is_explained(verb: str) -> None:
    for action in verbs_of(build_parser())[verb]._actions:
        assert action.help or not action.option_strings or action.choices, action.option_strings


def test_the_verbs_stand_in_groups_on_one_screen() -> None:
    """Each verb has one line of its own, below its group."""
    lines = build_parser().format_help().splitlines()
    assert len(lines) <= 50
    groups = [
        line.strip() for line in lines if line.startswith("  ") and line[2:3] not in (" ", "-") and " " not in line[2:]
    ]
    assert groups == ["main", "services", "traces", "allocators", "clusters", "set-up"]
    listed = [line.split()[0] for line in lines if line.startswith("    ") and len(line.split()) > 1]
    assert listed == list(verbs_of(build_parser()))


@pytest.mark.parametrize(
    ("verb", "ending"),
    [("link", " -- COMMAND [ARG ...]"), ("run", " [-- COMMAND [ARG ...]]"), ("inspect", " [-- COMMAND [ARG ...]]")],
)
def test_the_usage_names_the_command_of_a_verb(verb: str, ending: str) -> None:
    usage = verbs_of(build_parser())[verb].format_help().partition("\n\n")[0]
    assert usage.endswith(ending)
    assert "COMMAND" not in verbs_of(build_parser())["apply"].format_usage()
