"""Runs a workload once, under the meter, and judges the run: did it succeed, and with what output?"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from heapwright.allocators.takeover import is_watched
from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions, Run, run_metered
from heapwright.measure.process_group import describe_exit_status, run_group
from heapwright.workload.last_line import TAIL_BYTES, last_line
from heapwright.workload.model import Input, Workload
from heapwright.workload.score import MIN_LIMIT_S, NO_OBJECTIVE, score
from heapwright.workload.server import ENDED_EARLY, ENDED_UNDER_LOAD, KILLED, NOT_STARTED, MeterArguments, run_server

_REPEATED = (
    "if a run leaves something behind that stops the next one, remove it by `setup` or `cleanup` of a workload file"
)
_BY_HAND = "start the server and its load by hand first: the server must become ready, the load must succeed and end"


@dataclass(frozen=True)
class Outcome:
    """A judged run.

    Attributes:
        run: its measurements.
        digest: digest of the output, for comparisons; empty if the output is not compared, or if the loader may have
            written its bindings into it (`takeover.watch_environment`).
        failure: why the run does not count ('timed out after 5 s', 'exit status 3: no such config'), or empty. The part
            before ': ' is the kind of failure; the rest is the last line that the program wrote.
        output: stdout of the run, if the executor keeps it.
        hint: what to do if the program's exit status is the failure but may be intended, or if a server fails without
            a word; otherwise empty.
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


def time_limit(walls: Iterable[float], workload: Workload) -> float:
    """Return the seconds that a run may take: ten times the default's, at least ten, and the pauses of the load.

    Args:
        walls: wall times of the default, in seconds.
        workload: the program and its inputs.
    """
    return max(10.0, 10 * max(walls)) + workload.quiet_s


def how_it_fails(succeeded: bool) -> str:
    """Return how a program fails, without the reason.

    Args:
        succeeded: whether it has succeeded on the same input before.
    """
    return "succeeded at first and failed when repeated" if succeeded else "fails by itself"


def advice(outcome: Outcome, succeeded: bool = False) -> str:
    """Return advice for a program that fails by itself: its last words, or what to do.

    Args:
        outcome: the failed run.
        succeeded: whether the program has succeeded on the same input before.
    """
    if outcome.failure.startswith(NO_OBJECTIVE):
        return "run the command of [objective] by hand, on a file with the program's output"
    if KILLED in outcome.failure:
        return ""  # the failure itself has the advice
    words = last_line(outcome.run.stderr_tail)
    hint = _REPEATED if succeeded else outcome.hint
    if not words and not hint:
        return "run it by hand first; it must succeed and end"
    quoted = "" if outcome.failure.endswith(words) else f"its last words: {words}"
    return "; ".join(part for part in (quoted, hint) if part)


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
            HeapwrightError: set-up failed, clean-up failed after a run that succeeded, or the command could not be
                started or measured.
            Stopped: `stop` was set.
        """
        file = self.workload.file
        plain = {**(os.environ if self.environ is None else self.environ), **file.env, **input_.env}
        inside = plain  # set-up, clean-up and loads run on this machine, the command perhaps in a container
        if self.workload.container is not None:
            inside = {**self.workload.base_environment(), **input_.env}
        self._helper("setup", file.setup, plain)
        try:
            outcome = self._measured(input_, pad_environment({**inside, **env}, pad), plain, stop)
        except BaseException:  # more important than an error of the clean-up, above all KeyboardInterrupt
            with contextlib.suppress(HeapwrightError):
                self._helper("cleanup", file.cleanup, plain)
            raise
        try:
            self._helper("cleanup", file.cleanup, plain)
        except HeapwrightError as error:
            if not outcome.failure and not outcome.run.cut:
                raise
            outcome.run.warnings.append(f"after a run that did not end properly, {error.message}")
        return outcome

    def _measured(
        self, input_: Input, env: dict[str, str], plain: dict[str, str], stop: threading.Event | None
    ) -> Outcome:
        file = self.workload.file
        command = self.workload.command(input_)
        stdin = Path(input_.stdin or file.stdin) if input_.stdin or file.stdin else None
        with tempfile.TemporaryFile() as output:
            kept = self.keep_output or file.output.compare == "command" or file.objective is not None
            run_arguments = MeterArguments(
                env=env,
                cwd=self.workload.cwd,
                keep=output if kept else None,
                forward=self.forward,
                container=self.workload.container,
            )
            if file.server is not None:
                run, trouble = run_server(command, self.options, run_arguments, plain, file.server)
            else:
                attended = self.forward is not None
                run = run_metered(
                    command,
                    self.options,
                    **run_arguments,
                    stdin=stdin,
                    stop=stop,
                    attended=attended,
                    prefix=file.prefix,
                )
                trouble = ""
            failure = self._failure(run, trouble) or self._missing()
            if file.objective is not None and not failure:
                output.seek(0)
                limit = file.timeout or max(self.options.timeout or 0.0, MIN_LIMIT_S)
                failure = score(run, file.objective, output, self.workload.cwd, plain, limit)
            digest = "" if failure or is_watched(env) else self._digest(input_, run, output, plain)
            output.seek(0)
            printed = output.read().decode(errors="replace") if self.keep_output else ""
        return Outcome(run, digest, failure, printed, self._hint(input_, run, failure))

    def _hint(self, input_: Input, run: Run, failure: str) -> str:
        """Return what to do about an exit status that the program may intend, or a silent server; see `Outcome`."""
        file, status = self.workload.file, run.exit_code
        if file.server is not None:
            return _BY_HAND if failure and not last_line(run.stderr_tail) else ""
        if not failure.startswith(describe_exit_status(status)) or status >= NOT_STARTED:
            return ""
        of_file = f"success = {[*file.success, status]} in a workload file"
        option = f"--success {','.join(map(str, [*file.success, status]))}"
        hint = f"if status {status} is not a failure: {of_file if self.workload.path else f'{option}, or {of_file}'}"
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
        if run.timed_out and trouble in ("", ENDED_UNDER_LOAD):
            return f"timed out after {self.options.timeout:g} s"
        if trouble not in ("", ENDED_EARLY, ENDED_UNDER_LOAD):
            return trouble
        succeeded = run.exit_code in (*self.workload.file.success, self._stop_status())
        if trouble == ENDED_UNDER_LOAD and not succeeded:
            trouble = ""  # its own ending says more
        if not trouble and succeeded:
            return f"it ended and did not print '{prefix.output}'" if prefix and prefix.output else ""
        ending, words = describe_exit_status(run.exit_code), last_line(run.stderr_tail)
        if trouble == ENDED_EARLY and ending.startswith("killed"):
            trouble = f"{ending} before it was ready"
        return (trouble or ending) + (f": {words}" if words else "")

    def exit_status(self, outcome: Outcome) -> int:
        """Return an exit status for the run: 0 if it succeeded, otherwise the command's own, or 1 if that is 0."""
        code = outcome.run.exit_code if outcome.failure else 0
        return int(bool(outcome.failure)) if code in (0, self._stop_status()) else code

    def _stop_status(self) -> int:
        server = self.workload.file.server
        return 128 + signal.Signals[server.stop] if server else -1

    def _missing(self) -> str:
        """Return a failure if an output file is missing, or empty."""
        output_rule = self.workload.file.output
        for name in output_rule.files if output_rule.compare == "files" else []:
            if not os.access(self.workload.cwd / name, os.R_OK) or (self.workload.cwd / name).is_dir():
                return f"the output file {name} is missing"
        return ""

    def _digest(self, input_: Input, run: Run, output: IO[bytes], plain: Mapping[str, str]) -> str:
        """Return a digest of the output: equal digests mean equal outputs.

        Args:
            input_: the input of the run.
            run: the run, which succeeded.
            output: its stdout, if the rule needs it.
            plain: the environment of the comparing command.
        """
        output_rule, prefix = self.workload.file.output, self.workload.file.prefix
        if prefix is not None and prefix.seconds:
            return ""  # the amount of output at that time is random
        match output_rule.compare:
            case "none":
                return ""
            case "stdout":
                return run.output_sha256
            case "files":
                digest = hashlib.sha256()
                for name in output_rule.files:
                    with (self.workload.cwd / name).open("rb") as content:
                        digest.update(hashlib.file_digest(content, "sha256").digest())
                return digest.hexdigest()
            case "command":
                return self._compare(input_, output, plain)

    def _compare(self, input_: Input, output: IO[bytes], plain: Mapping[str, str]) -> str:
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
            status = self._run_helper("comparing", words, env=dict(plain), stderr=subprocess.DEVNULL)
        return "same" if status == 0 else f"differs (comparer's status {status})"

    def _helper(self, what: str, words: list[str], env: Mapping[str, str]) -> None:
        """Run the set-up or clean-up command, not measured."""
        if not words:
            return
        with tempfile.TemporaryFile() as said:  # the output may be large
            status = self._run_helper(what, words, env=dict(env), stderr=said)
            if status:
                said.seek(max(0, said.seek(0, os.SEEK_END) - TAIL_BYTES))
                last = last_line(said.read().decode(errors="replace"))
                raise HeapwrightError(f"the {what} command failed with status {status}: {last}")

    def _run_helper(self, what: str, words: list[str], **how: Any) -> int:
        """Run a command of the workload that is not measured, and return its exit status.

        Args:
            what: the name of the command in messages.
            words: the command.
            how: further arguments of `subprocess.Popen`.

        Raises:
            HeapwrightError: it does not start, or takes longer than the workload's time limit for a run.
        """
        limit = self.workload.file.timeout or None
        nothing = subprocess.DEVNULL
        try:
            return run_group(words, limit, cwd=self.workload.cwd, stdin=nothing, stdout=nothing, **how)
        except OSError as error:
            raise HeapwrightError(f"the {what} command does not start: {error}") from None
        except subprocess.TimeoutExpired:
            raise HeapwrightError(f"the {what} command did not end within {limit:g} s") from None
