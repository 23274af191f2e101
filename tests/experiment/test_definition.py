"""Tests the definition of an experiment: its searches' command lines, and the messages about invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from heapwright.errors import UsageError
from heapwright.experiment.definition import PlannedSearch, expand_searches, load_definition
from heapwright.experiment.run import tune_command

TEXT = """
methods = ["random", "gp"]
seeds = 1
budgets = [9]
minimize = ["mean_rss"]
options = ["--no-runtime"]
[[program]]
name = "perl"
trace = ["perl.hwt", "perl.model"]
[[program]]
name = "true"
command = ["true"]
options = ["--proxy", "none"]
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("perl.hwt", "perl.model"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def searches_in(base: Path, text: str = TEXT) -> list[PlannedSearch]:
    (base / "e.toml").write_text(text)
    return expand_searches(load_definition(base / "e.toml"))


def test_recordings_take_the_place_of_a_command(base: Path) -> None:
    perl, _, true, _ = searches_in(base)
    definition = load_definition(base / "e.toml")
    words = tune_command(perl, definition, base, base / "s.study")
    at = words.index("--trace")
    assert words[at:] == ["--trace", str(base / "perl.hwt"), str(base / "perl.model")], "relative to the definition"
    assert "--no-runtime" in words
    assert "--proxy" not in words
    words = tune_command(true, definition, base, base / "s.study")
    assert words[-5:] == ["--no-runtime", "--proxy", "none", "--", "true"]


def test_a_preset_is_searched_on_a_recording(base: Path) -> None:
    preset = TEXT.replace('minimize = ["mean_rss"]', 'preset = "landscape2025"')
    perl, *_ = searches_in(base, preset)
    words = tune_command(perl, load_definition(base / "e.toml"), base, base / "s.study")
    assert words[words.index("--preset") + 1] == "landscape2025"
    assert "--minimize" not in words, "the preset's objectives count"


def test_a_single_recording_is_a_text(base: Path) -> None:
    one, *_ = searches_in(base, TEXT.replace('["perl.hwt", "perl.model"]', '"perl.hwt"'))
    assert one.program.traces == ["perl.hwt"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"perl.model"]', '"no.hwt"]', "e.toml: perl: no such trace: {base}/no.hwt"),
        ('"perl.model"]', '"perl.hwt"]', "is given twice"),
        ('"perl.model"]', '"."]', "is a directory"),
        ('["perl.hwt", "perl.model"]', '""', "perl needs either a command, a workload or a trace"),
        ('command = ["true"]', 'command = ["true"]\ntrace = "perl.hwt"', "true needs either a command"),
        ('"mean_rss"', '"p99_ms"', "e.toml:5: minimize: a replay does not measure 99th percentile latency"),
        ("seeds = 1", 'seeds = 1\npreset = "landscape25"', "unknown preset 'landscape25'"),
        ('"--proxy"', '"--trace"', "options: --trace is given by the experiment"),
        ('"--no-runtime"', '"--cluster=x"', "options: --cluster=x is given by the experiment"),
        ('command = ["true"]', 'workload = "no.toml"', "e.toml: true: cannot read {base}/no.toml"),
    ],
)
def test_an_invalid_definition_is_refused(base: Path, old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(UsageError) as refused:
        searches_in(base, TEXT.replace(old, new))
    assert message.replace("{base}", str(base)) in refused.value.message
