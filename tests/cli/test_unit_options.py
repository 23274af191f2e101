"""How the command line reads its words: numbers, percentages, pairs, what follows `--`, which options were named."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.cli import main as cli
from heapwright.cli.chosen_spaces import named_allocators
from heapwright.cli.common import (
    _statuses,
    open_workload,
    positive,
    read_workload,
    seconds,
    with_stdin_named,
    writes_stdout,
)
from heapwright.cli.compare import _reproduce
from heapwright.cli.durations import duration
from heapwright.cli.measuring_options import check_measuring
from heapwright.cli.tune import _pairs, _percent, given_options
from heapwright.errors import HeapwrightError, UsageError


def parsed(*words: str) -> argparse.Namespace:
    """`tune` with these words, as `main` would read them."""
    own, _, target = " ".join(["tune", *words]).partition(" -- ")
    args = cli.build_parser().parse_args(own.split())
    args.command = target.split() if target else None
    return args


# numbers


@pytest.mark.parametrize(("text", "value"), [("5", 0.05), ("0.5", 0.005), ("0.5%", 0.005), ("0", 0.0)])
def test_a_percentage_is_read_as_a_share(text: str, value: float) -> None:
    assert _percent(text) == pytest.approx(value)


PAIRS = [("6", (6, 40)), ("10:20", (10, 20)), ("50", (50, 50)), ("7:7", (7, 7)), ("10:", (10, 40))]


@pytest.mark.parametrize(("text", "value"), PAIRS)
def test_pairs_are_read_as_minimum_and_maximum(text: str, value: tuple[int, int]) -> None:
    assert _pairs(text) == value


@pytest.mark.parametrize("text", ["", "5", "5:10", "10:9", "ten", "10:x", "²", ":20", "-6", "6.5", "10:20:30"])
def test_invalid_pairs_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not MIN or MIN:MAX with MIN at least 6"):
        _pairs(text)


@pytest.mark.parametrize("text", ["", "-1", "50", "100", "x", "nan", "inf"])
def test_invalid_percentages_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a percentage from 0 to 50"):
        _percent(text)


@given(st.text(max_size=8))
def test_any_text_is_a_valid_number_or_refused(text: str) -> None:
    checks: list[tuple[Callable[[str], Any], Callable[[Any], bool]]] = [
        (positive, lambda count: count >= 1),
        (seconds, lambda time: 0 < time < math.inf),
        (_percent, lambda share: 0 <= share < 0.5),
        (_pairs, lambda pairs: 6 <= pairs[0] <= pairs[1]),
    ]
    for read, is_valid in checks:
        try:
            value = read(text)
        except argparse.ArgumentTypeError:
            continue
        assert is_valid(value), read


@pytest.mark.parametrize("text", ["²", "1_0", "0", "-1", "1.0", " 1", ""])
def test_invalid_counts_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        positive(text)


def test_seconds_are_above_zero_and_finite() -> None:
    assert seconds("1.5") == 1.5
    for text in ("0", "-1", "nan", "inf", "1e9", "soon", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number of seconds above 0"):
            seconds(text)


# which options were named


def test_only_the_options_of_the_user_are_given() -> None:
    assert given_options(parsed(), "glibc") == {"allocator": "glibc"}


def test_options_have_the_names_of_a_study() -> None:
    words = "--minimize wall,peak_heap --budget 15m --method grid --params a,,b --pairs 7:9 --instructions callgrind"
    words += " --seed 3 --margin 1 --expert --meter ptrace --massif-compat --timeout 2"
    assert given_options(parsed(words), "glibc") == {
        "allocator": "glibc",
        "objectives": ("wall_s", "peak_heap_bytes"),
        "evaluations": 0,
        "budget_s": 900.0,
        "method": "grid",
        "params": ("a", "b"),
        "pairs_min": 7,
        "pairs_max": 9,
        "callgrind": True,
        "seed": 3,
        "margin": 0.01,
        "expert": True,
        "meter": "ptrace",
        "massif": True,
        "massif_by": "emulation",
        "timeout": 2.0,
    }


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("--minimize peek_rss", "unknown metric 'peek_rss'", "did you mean 'peak_rss'?"),
        (
            "--method nsga3",
            "unknown method 'nsga3'",
            "did you mean 'nsga2'?; the package of a method of your own must be installed here",
        ),
        ("--budget 1h30m", "--budget '1h30m' is neither a count nor a time", "for example 200, 90s, 15m or 2h"),
    ],
)
def test_unknown_values_are_refused_with_a_hint(words: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        given_options(parsed(words), "glibc")
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_workload_is_a_command_or_a_file_and_not_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.toml").write_text('command = ["true"]\n')
    assert read_workload(parsed("-- true --json x")).file.command == ["true", "--json", "x"]
    assert read_workload(parsed("--workload w.toml")).file.command == ["true"]
    with pytest.raises(UsageError, match="a command and --workload cannot both be given"):
        read_workload(parsed("--workload w.toml -- true"))
    with pytest.raises(UsageError, match="there is no command to run"):
        read_workload(parsed())


def test_the_allocators_are_those_of_the_options(tmp_path: Path) -> None:
    space = tmp_path / "s.toml"
    space.write_text('[allocator]\nname = "mine"\nenv = "M"\n[[param]]\nkey = "k"\nexplain = "e"\ntype = "bool"\n')
    assert [a.name for a in named_allocators(parsed(f"--space {space}"))] == ["mine"]
    for other in ("--allocators glibc", "--preset landscape"):
        with pytest.raises(UsageError, match="--space cannot be given with --allocators or --preset"):
            named_allocators(parsed(f"--space {space} {other}"))
    with pytest.raises(HeapwrightError, match=r"unknown allocator 'glibk'|not glibc"):
        named_allocators(parsed("--allocators glibk"))
    assert named_allocators(parsed()) == [], "all that are found are searched"


def test_options_that_need_a_file_refuse_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("report x.study -o -", "fit x.hwt -o -", "verify x.study --junit -"):
        status, error = said(capsys, *words.split())
        assert status == 2
        assert "does not write to stdout" in error


def test_a_comparison_can_be_repeated_as_it_was() -> None:
    words = "compare -n 3 --seed 7 --meter poll --timeout 5 --massif emulation --container-args=--cpus=1 --container i"
    found = " ".join(_reproduce(cli.parse([*words.split(), "--", "true"])))
    for part in ("--seed 7", "--meter poll", "--timeout 5", "--massif emulation", "--container i", "--cpus=1"):
        assert part in found


# main


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Status and stderr of the command line."""
    return cli.main(list(words)), capsys.readouterr().err


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `doctor` fail so."""

    def run(_args: Any) -> int:
        raise error

    monkeypatch.setattr("heapwright.cli.doctor.run", run)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (HeapwrightError("wrong", "do this"), 1, "heapwright: wrong (do this)\n"),
        (HeapwrightError("wrong"), 1, "heapwright: wrong\n"),
        (UsageError("wrong", "do this"), 2, "heapwright: wrong (do this)\n"),
        (HeapwrightError("gone", status=127), 127, "heapwright: gone\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (FileNotFoundError(2, "No such file or directory", "a/b"), 1, "heapwright: a/b: No such file or directory\n"),
        (OSError("strange"), 1, "heapwright: strange\n"),
    ],
)
def test_every_failure_is_one_line_and_a_status(
    error: BaseException, status: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, error)
    assert said(capsys, "doctor") == (status, line)


@pytest.mark.parametrize(
    ("text", "length"), [("500ms", 0.5), ("1.5", 1.5), ("90s", 90.0), ("2m", 120.0), ("6h", 21600.0)]
)
def test_a_time_has_a_unit(text: str, length: float) -> None:
    assert duration(text) == length


@pytest.mark.parametrize("text", ["", "ms", "0ms", "5sms", "-1ms", "1e3ms", "soon"])
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time above 0"):
        duration(text)


def test_an_unexpected_exception_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.main(["doctor"])


def test_words_after_the_dashes_belong_to_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args.command)
        return 5

    monkeypatch.setattr("heapwright.cli.measure.run", run)
    assert said(capsys, "measure", "--", "prog", "--help", "--", "-n", "3") == (5, "")
    assert seen == [["prog", "--help", "--", "-n", "3"]]
    assert said(capsys, "allocators", "--", "x")[0] == 2
    assert said(capsys, "measure", "prog")[0] == 2, "a forgotten -- is no command"


def test_help_and_version_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from heapwright import __version__

    assert said(capsys, "--help")[0] == 0
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"heapwright {__version__}\n"
    assert said(capsys)[0] == 0, "no word at all shows the help"
    assert said(capsys, "-x")[0] == 2


# standard input and statuses of success


@pytest.mark.parametrize(("text", "value"), [("0", (0,)), ("0,1", (0, 1)), (" 1, 0,1", (1, 0)), ("255", (255,))])
def test_statuses_of_success_are_read(text: str, value: tuple[int, ...]) -> None:
    assert _statuses(text) == value


@pytest.mark.parametrize("text", ["", ",", "0,", "-1", "256", "x", "0 1", "²"])
def test_invalid_statuses_of_success_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a list of exit statuses from 0 to 255"):
        _statuses(text)


@pytest.mark.parametrize("option", ["--stdin in.txt", "--stdin none", "--success 0,1"])
def test_stdin_and_success_are_refused_beside_a_workload_file(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option.split()[0]} applies only to a command after --"):
        read_workload(parsed(f"--workload w.toml {option}"))


def test_stdin_and_success_apply_to_a_command(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x")
    with open_workload(parsed(f"--success 0,1 --stdin {tmp_path}/in -- true")) as workload:
        assert (workload.file.stdin, workload.file.success) == (str(tmp_path / "in"), [0, 1])
    with open_workload(parsed("--stdin none -- true"), before="/other") as workload:
        assert (workload.file.stdin, workload.file.success) == ("", [0])


@pytest.mark.parametrize(
    ("words", "stdin", "again"),
    [
        ("tune -q -- sort -n", "/in", "tune -q --stdin /in -- sort -n"),
        ("tune --stdin - -- sort -- --stdin x", "/in", "tune --stdin /in -- sort -- --stdin x"),
        ("tune --stdin=in -q -- sort", "/in", "tune -q --stdin /in -- sort"),
        ("tune -q -- sort", None, "tune -q -- sort"),
        ("tune --stdin none -- sort", "none", "tune --stdin none -- sort"),
    ],
)
def test_a_command_line_names_its_input_again(words: str, stdin: str | None, again: str) -> None:
    args = argparse.Namespace(stdin=stdin)
    assert with_stdin_named(words.split(), args) == again.split()


# stdout


def test_only_one_result_goes_to_stdout() -> None:
    args = cli.build_parser().parse_args(["compare", "--csv", "-"])
    assert writes_stdout(args)
    assert not writes_stdout(cli.build_parser().parse_args(["compare", "--csv", "a.csv"]))
    assert writes_stdout(cli.build_parser().parse_args(["measure", "--json", "-"]))
    with pytest.raises(UsageError, match="--json and --csv both write to stdout"):
        writes_stdout(cli.build_parser().parse_args(["compare", "--csv", "-", "--json", "-"]))


def test_a_warning_says_that_instructions_cannot_be_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for works in (True, False):
        found = {"instructions": {"works": works, "why": "no counters"}}
        monkeypatch.setattr("heapwright.measure.meter.probe", lambda found=found: found)
        check_measuring(parsed("--instructions perf"))
        assert ("instructions cannot be counted here (no counters)" in capsys.readouterr().err) is not works
