"""Tests our own standard input as a file: which input is read, which is ignored, and that nothing waits for ever."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heapwright.errors import HeapwrightError, UsageError
from heapwright.workload import stdin
from heapwright.workload.stdin import capture_own_stdin, capture_stdin_file

Become = Callable[[int], None]


@pytest.fixture
def become() -> Iterator[Become]:
    """Makes a descriptor the standard input of this process, until the test ends."""

    def replace(source: int) -> None:
        os.dup2(source, 0)
        os.close(source)

    before = os.dup(0)
    yield replace
    os.dup2(before, 0)
    os.close(before)


@pytest.fixture
def pipe(become: Become) -> Iterator[int]:
    """The writing end of a pipe that is our standard input."""
    source, sink = os.pipe()
    become(source)
    yield sink
    try:
        os.close(sink)
    except OSError:  # the test has closed it
        return


def named(content: bytes) -> str:
    """How a copy of this is called."""
    return f"heapwright-{hashlib.sha256(content).hexdigest()[:16]}.stdin"


def test_a_pipe_is_copied_to_a_file_that_is_named_by_its_content(pipe: int, tmp_path: Path) -> None:
    os.write(pipe, b"3\n1\n2\n")
    os.close(pipe)
    taken = capture_own_stdin(lambda: tmp_path)
    assert taken is not None
    assert (taken.path, taken.size) == (tmp_path / named(b"3\n1\n2\n"), 6)
    assert (taken.copied, taken.made) == (True, True)
    assert taken.path.read_bytes() == b"3\n1\n2\n"
    assert taken.sentence == "standard input (6 B) is given to every run"
    assert list(tmp_path.iterdir()) == [taken.path]


def test_the_same_content_is_the_same_file(become: Become, tmp_path: Path) -> None:
    made = []
    for _ in range(2):
        source, sink = os.pipe()
        os.write(sink, b"again")
        os.close(sink)
        become(source)
        taken = capture_own_stdin(lambda: tmp_path)
        assert taken is not None
        made.append(taken.made)
    assert made == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == [named(b"again")]


def test_a_slow_pipe_is_taken_to_its_end(
    pipe: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdin, "FIRST_S", 0.05)

    def write() -> None:
        for piece in (b"a", b"b", b"c"):
            os.write(pipe, piece)
            time.sleep(0.2)
        os.close(pipe)

    writer = threading.Thread(target=write)
    os.write(pipe, b"-")  # the first is there at once
    writer.start()
    taken = capture_own_stdin(lambda: tmp_path)
    writer.join()
    assert taken is not None
    assert taken.path.read_bytes() == b"-abc"
    assert capsys.readouterr().err.count("waiting for the end of standard input") == 1


def test_a_silent_pipe_is_not_taken(
    pipe: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pipe > 0
    monkeypatch.setattr(stdin, "FIRST_S", 0.05)
    assert capture_own_stdin(lambda: tmp_path) is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "without data for 0.05 s, so the runs get no input (--stdin - waits for data" in said
    assert not list(tmp_path.iterdir())


def test_a_silent_pipe_that_is_asked_for_is_waited_for(
    pipe: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdin, "FIRST_S", 0.02)
    monkeypatch.setattr(stdin, "STALL_S", 0.02)

    def write() -> None:
        os.write(pipe, b"late")
        os.close(pipe)

    later = threading.Timer(0.3, write)
    later.start()
    taken = capture_own_stdin(lambda: tmp_path, wait=True)
    later.join()
    assert taken is not None
    assert taken.path.read_bytes() == b"late"


def test_half_an_input_is_an_error(pipe: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "FIRST_S", 0.02)
    monkeypatch.setattr(stdin, "STALL_S", 0.05)
    os.write(pipe, b"half")
    with pytest.raises(HeapwrightError, match=r"does not end: after 4 B, no data came for 0\.05 s"):
        capture_own_stdin(lambda: tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_endless_input_does_not_fill_the_disk(pipe: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "MAX_BYTES", 3)
    os.write(pipe, b"yes\n")
    with pytest.raises(HeapwrightError, match="longer than 3 B"):
        capture_own_stdin(lambda: tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_empty_pipe_gives_no_input(pipe: int, tmp_path: Path) -> None:
    os.close(pipe)
    assert capture_own_stdin(lambda: tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_devices_sockets_and_terminals_give_no_input(become: Become, tmp_path: Path) -> None:
    become(os.open(os.devnull, os.O_RDONLY))
    assert capture_own_stdin(lambda: tmp_path) is None
    one, other = socket.socketpair()
    with other:
        other.send(b"not ours")
        become(one.detach())
        assert capture_own_stdin(lambda: tmp_path) is None
    main, terminal = os.openpty()
    os.write(main, b"typed\n")
    become(terminal)
    assert capture_own_stdin(lambda: tmp_path) is None
    os.close(main)


def test_a_closed_standard_input_gives_no_input(become: Become, tmp_path: Path) -> None:
    become(os.open(os.devnull, os.O_RDONLY))
    os.close(0)
    assert capture_own_stdin(lambda: tmp_path) is None


def test_a_file_is_used_in_place(become: Become, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"lines\n")
    become(os.open(file, os.O_RDONLY))
    taken = capture_own_stdin(lambda: tmp_path)
    assert taken is not None
    assert (taken.path, taken.size, taken.copied) == (file, 6, False)
    assert str(file) in taken.sentence
    assert [*tmp_path.iterdir()] == [file]
    assert os.read(0, 100) == b"lines\n", "a shell's loop may go on with it"


def test_the_rest_of_a_file_is_copied(become: Become, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"one\ntwo\n")
    become(os.open(file, os.O_RDONLY))
    assert os.read(0, 4) == b"one\n"
    taken = capture_own_stdin(lambda: tmp_path)
    assert taken is not None
    assert taken.copied
    assert taken.path.read_bytes() == b"two\n"
    assert os.read(0, 100) == b"two\n"
    assert capture_own_stdin(lambda: tmp_path) is None, "nothing is left of it"


def test_a_file_without_a_name_is_copied(become: Become, tmp_path: Path) -> None:
    """Here documents of some shells are."""
    file = tmp_path / "gone"
    file.write_bytes(b"here")
    become(os.open(file, os.O_RDONLY))
    file.unlink()
    file.write_bytes(b"another file of that name")
    taken = capture_own_stdin(lambda: tmp_path)
    assert taken is not None
    assert taken.path.read_bytes() == b"here"


def test_a_named_file_is_used_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_bytes(b"x")
    Path("link").symlink_to("in.txt")
    Path("empty").touch()
    taken = capture_stdin_file("link", lambda: tmp_path)
    assert taken is not None
    assert (taken.path, taken.copied) == (tmp_path / "in.txt", False)
    assert capture_stdin_file("empty", lambda: tmp_path) is None
    for name, why in (("nowhere", "nowhere: No such file"), (".", "is a directory")):
        with pytest.raises(UsageError, match=why):
            capture_stdin_file(name, lambda: tmp_path)


def test_a_named_pipe_is_copied(tmp_path: Path) -> None:
    """What `--stdin <(command)` is."""
    source, sink = os.pipe()
    os.write(sink, b"from a command")
    os.close(sink)
    taken = capture_stdin_file(f"/dev/fd/{source}", lambda: tmp_path)
    os.close(source)
    assert taken is not None
    assert taken.copied
    assert taken.path.read_bytes() == b"from a command"


def test_a_folder_that_cannot_be_written_to(pipe: int, tmp_path: Path) -> None:
    os.write(pipe, b"x")
    with pytest.raises(HeapwrightError, match=r"cannot be copied to .*nowhere: No such file"):
        capture_own_stdin(lambda: tmp_path / "nowhere")
