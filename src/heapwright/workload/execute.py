"""Runs a workload once, under the meter, and judges the run: did it succeed, and with what output?"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypedDict

from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions, Run, run_metered
from heapwright.terminal_text import visible
from heapwright.workload.model import Input, Server, Workload

_TAIL_BYTES = 4096  # of a helper's output, to find its last line
_MAX_LAST_WORDS = 200  # characters of a last line
_NOT_STARTED = 126  # exit statuses from here on mean that a shell could not start the command, or signals
_ENDED_EARLY = "ended before it was ready"


@dataclass(frozen=True)
class Outcome:
    """A judged run.

    Attributes:
        run: its measurements.
        digest: digest of the output, for comparisons; empty if the output is not compared.
        failure: why the run does not count ('timed out after 5 s', 'exit status 3: no such config'), or empty. The part
            before ': ' is the kind of failure; the rest is the last line that the program wrote.
        output: stdout of the run, if the executor keeps it.
        hint: what to do if the program's exit status is the failure but may be intended; otherwise empty.
    """

    run: Run
    digest: str
    failure: str
    output: str = ""
    hint: str = ""


def pad_environment(env: dict[str, str], length: int) -> dict[str, str]:
    """Add a variable of this length in bytes (none for 0), because stack offsets bias timings.

    Source: Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!", ASPLOS 2009.
    """
    return {**env, "HEAPWRIGHT_PAD": "x" * length} if length else env


def ending(status: int) -> str:
    """Describe an exit status: 139 → 'killed by SIGSEGV', 3 → 'exit status 3'."""
    if status <= 128:
        return f"exit status {status}"
    number = status - 128
    return f"killed by {signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'}"


def last_words(text: str) -> str:
    """Return the last line that a program wrote, shortened and safe to print; empty if it wrote none."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("heapwright-meter: ")]
    return visible(lines[-1].strip()[:_MAX_LAST_WORDS]) if lines else ""


def advice(outcome: Outcome) -> str:
    """Return advice for a program that fails by itself: its last words, or what to do."""
    words = last_words(outcome.run.stderr_tail)
    if not words and not outcome.hint:
        return "run it by hand first; it must succeed and end"
    quoted = "" if outcome.failure.endswith(words) else f"its last words: {words}"
    return "; ".join(part for part in (quoted, outcome.hint) if part)


class Executor:
    """Runs one workload's inputs.

    Args:
        workload: what to run.
        options: how to measure; its timeout (seconds) applies to every run.
        references: a directory for the reference stdout of each input, for `compare = "command"`.
        environ: the base environment, which the workload's variables extend; None for heapwright's own.
        keep_output: whether outcomes contain the whole stdout.
        forward: the file that gets the command's stdout as it comes. The command then also inherits stderr, and
            Ctrl-C at the terminal reaches it. None: the output is not forwarded.
    """

    def __init__(
        self,
        workload: Workload,
        options: MeterOptions,
        references: Path,
        environ: Mapping[str, str] | None = None,
        keep_output: bool = False,
        forward: IO[bytes] | None = None,
    ) -> None:
        self.workload = workload
        self.options = options
        self.references = references
        self.environ = environ
        self.keep_output = keep_output
        self.forward = forward

    def run(self, input_: Input, env: Mapping[str, str], pad: int = 0, stop: threading.Event | None = None) -> Outcome:
        """Run one input once.

        Args:
            input_: the input.
            env: variables that override those of the workload.
            pad: bytes of padding; see `pad_environment`.
            stop: an event by which another thread ends the run (not for a server).

        Raises:
            HeapwrightError: set-up failed, or the command could not be started or measured.
            Stopped: `stop` was set.
        """
        file = self.workload.file
        plain = {**(os.environ if self.environ is None else self.environ), **file.env, **input_.env}
        self._helper("setup", file.setup, plain)
        try:
            outcome = self._measured(input_, pad_environment({**plain, **env}, pad), plain, stop)
        finally:
            self._helper("cleanup", file.cleanup, plain)
        return outcome

    def _measured(
        self, input_: Input, env: dict[str, str], plain: dict[str, str], stop: threading.Event | None
    ) -> Outcome:
        file = self.workload.file
        command = self.workload.command(input_)
        stdin = Path(input_.stdin or file.stdin) if input_.stdin or file.stdin else None
        with tempfile.TemporaryFile() as output:
            keep = output if self.keep_output or file.output.compare == "command" else None
            how = Metered(env=env, cwd=self.workload.cwd, keep=keep, forward=self.forward)
            if file.server is not None:
                run, trouble = _run_server(command, self.options, how, plain, file.server)
            else:
                attended = self.forward is not None
                run = run_metered(
                    command, self.options, **how, stdin=stdin, stop=stop, attended=attended, prefix=file.prefix
                )
                trouble = ""
            failure = self._failure(run, trouble) or self._missing()
            digest = "" if failure else self._digest(input_, run, output)
            output.seek(0)
            printed = output.read().decode(errors="replace") if self.keep_output else ""
        return Outcome(run, digest, failure, printed, self._hint(input_, run, failure))

    def _hint(self, input_: Input, run: Run, failure: str) -> str:
        """Return what to do about an exit status that the program may intend; see `Outcome`."""
        file, status = self.workload.file, run.exit_code
        if not failure.startswith(ending(status)) or file.server is not None or status >= _NOT_STARTED:
            return ""
        of_file = f"success = {[*file.success, status]} in a workload file"
        option = f"--success {','.join(map(str, [*file.success, status]))}"
        hint = f"if status {status} is no failure: {of_file if self.workload.path else f'{option}, or {of_file}'}"
        if input_.stdin or file.stdin:
            return hint
        stdin = 'stdin = "FILE"' if self.workload.path else "--stdin FILE"
        return f"{hint}; if it reads standard input, which is empty here: {stdin}"

    def _failure(self, run: Run, trouble: str) -> str:
        """Return why the run does not count, or empty.

        Args:
            run: the run.
            trouble: what went wrong with a server, or empty.
        """
        prefix = self.workload.file.prefix
        if run.cut:
            return ""
        if run.timed_out and not trouble:
            return f"timed out after {self.options.timeout:g} s"
        if trouble not in ("", _ENDED_EARLY):
            return trouble
        if not trouble and run.exit_code in (*self.workload.file.success, self._stop_status()):
            return f"it ended and did not print '{prefix.output}'" if prefix and prefix.output else ""
        words = last_words(run.stderr_tail)
        return (trouble or ending(run.exit_code)) + (f": {words}" if words else "")

    def exit_status(self, outcome: Outcome) -> int:
        """Return an exit status for the run: 0 if it succeeded, otherwise the command's own, or 1 if that is 0."""
        code = outcome.run.exit_code if outcome.failure else 0
        return int(bool(outcome.failure)) if code in (0, self._stop_status()) else code

    def _stop_status(self) -> int:
        server = self.workload.file.server
        return 128 + signal.Signals[server.stop] if server else -1

    def _missing(self) -> str:
        """Return a failure if an output file is missing, or empty."""
        how = self.workload.file.output
        for name in how.files if how.compare == "files" else []:
            if not os.access(self.workload.cwd / name, os.R_OK) or (self.workload.cwd / name).is_dir():
                return f"the output file {name} is missing"
        return ""

    def _digest(self, input_: Input, run: Run, output: IO[bytes]) -> str:
        """Return a digest of the output: equal digests mean equal outputs."""
        how, prefix = self.workload.file.output, self.workload.file.prefix
        if prefix is not None and prefix.seconds:
            return ""  # the amount of output at that time is random
        match how.compare:
            case "none":
                return ""
            case "stdout":
                return run.output_sha256
            case "files":
                digest = hashlib.sha256()
                for name in how.files:
                    with (self.workload.cwd / name).open("rb") as content:
                        digest.update(hashlib.file_digest(content, "sha256").digest())
                return digest.hexdigest()
            case "command":
                return self._compare(input_, output)

    def _compare(self, input_: Input, output: IO[bytes]) -> str:
        """Run the user's comparing command; the first output becomes the reference."""
        self.references.mkdir(parents=True, exist_ok=True)
        safe = hashlib.sha256(input_.name.encode()).hexdigest()[:16]
        reference = self.references / safe
        output.seek(0)
        if not reference.exists():
            draft = reference.with_suffix(".new")
            with draft.open("wb") as kept:
                shutil.copyfileobj(output, kept)
            draft.rename(reference)
            return "same"
        with tempfile.NamedTemporaryFile(prefix="heapwright-") as mine:
            shutil.copyfileobj(output, mine)
            mine.flush()
            names = {"{reference}": str(reference), "{output}": mine.name}
            words = [names.get(word, word) for word in self.workload.file.output.command]
            try:
                status = subprocess.run(
                    words,
                    cwd=self.workload.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                ).returncode
            except OSError as error:
                raise HeapwrightError(f"the comparing command does not start: {error}") from None
        return "same" if status == 0 else f"differs (comparer's status {status})"

    def _helper(self, what: str, words: list[str], env: Mapping[str, str]) -> None:
        """Run the set-up or clean-up command, not measured."""
        if not words:
            return
        with tempfile.TemporaryFile() as said:  # the output may be large
            try:
                done = subprocess.run(
                    words,
                    cwd=self.workload.cwd,
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    check=False,
                )
            except OSError as error:
                raise HeapwrightError(f"the {what} command does not start: {error}") from None
            if done.returncode:
                said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL_BYTES))
                last = last_words(said.read().decode(errors="replace"))
                raise HeapwrightError(f"the {what} command failed with status {done.returncode}: {last}")


class Metered(TypedDict):
    """The arguments of `run_metered` that a command and a server share."""

    env: dict[str, str]
    cwd: Path
    keep: IO[bytes] | None
    forward: IO[bytes] | None


def _run_server(
    command: list[str], options: MeterOptions, how: Metered, plain: dict[str, str], server: Server
) -> tuple[Run, str]:
    """Start the server under the meter, wait until it is ready, run the load, and stop the server.

    Memory, CPU time and faults are those of the server; wall time is that of the load.

    Args:
        command: the server's command.
        options: how to measure.
        how: environment, directory and output of the server.
        plain: the environment of the load and the ready check, without the settings on trial.
        server: how to load and stop the server.

    Returns:
        The run, and what went wrong, or empty.
    """
    import dataclasses

    cwd = how["cwd"]
    if server.ready_port and _listening(server.ready_port):
        raise HeapwrightError(
            f"port {server.ready_port} already answers before the server is started",
            "stop what listens there, or choose another port",
        )
    result: list[Run | BaseException] = []

    pid_file = tempfile.NamedTemporaryFile(prefix="heapwright-", suffix=".pid")  # noqa: SIM115 (closed below)
    wrapper = ["/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"', pid_file.name, *command]

    def serve() -> None:
        try:
            result.append(run_metered(wrapper, options, **how))
        except BaseException as error:  # handed to the caller's thread
            result.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    trouble, load_s = "", None
    try:
        if not _wait_ready(server, thread, cwd, plain):
            trouble = f"not ready within {server.ready_timeout:g} s" if thread.is_alive() else _ENDED_EARLY
        else:
            began = time.monotonic()
            try:
                load = subprocess.run(
                    server.load,
                    cwd=cwd,
                    env=plain,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=options.timeout or None,
                    check=False,
                )
                if load.returncode:
                    trouble = f"the load command failed with status {load.returncode}"
            except subprocess.TimeoutExpired:
                trouble = "the load command timed out"
            except OSError as error:
                raise HeapwrightError(f"the load command does not start: {error}") from None
            load_s = time.monotonic() - began
    finally:
        _stop_server(pid_file.name, server, thread)
        pid_file.close()
    if not result or isinstance(result[0], BaseException):
        raise result[0] if result else HeapwrightError("the server cannot be stopped")  # type: ignore[misc]
    run = result[0]
    if load_s is not None:
        run = dataclasses.replace(run, metrics={**run.metrics, "wall_s": load_s})
    return run, trouble


def _listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return True
    except OSError:
        return False


def _wait_ready(server: Server, thread: threading.Thread, cwd: Path, plain: dict[str, str]) -> bool:
    deadline = time.monotonic() + server.ready_timeout
    while time.monotonic() < deadline and thread.is_alive():
        if server.ready_port and _listening(server.ready_port):
            return True
        if server.ready:
            try:
                done = subprocess.run(
                    server.ready,
                    cwd=cwd,
                    env=plain,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=5,
                    check=False,
                )
                if done.returncode == 0:
                    return True
            except subprocess.TimeoutExpired:
                pass
            except OSError as error:
                raise HeapwrightError(f"the ready command does not start: {error}") from None
        elif not server.ready_port:
            return True
        time.sleep(0.02)
    return False


def _stop_server(pid_file: str, server: Server, thread: threading.Thread) -> None:
    """Stop the server by its signal, and after ten seconds by SIGKILL. It may not have started yet."""
    for number in (signal.Signals[server.stop], signal.SIGKILL):
        deadline = time.monotonic() + 10.0
        sent = False
        while thread.is_alive() and time.monotonic() < deadline:
            text = Path(pid_file).read_text().strip()
            if text.isdecimal() and not sent:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(text), number)
                sent = True
            thread.join(max(0.0, deadline - time.monotonic()) if sent else 0.01)
        if not thread.is_alive():
            return
