"""Real small commands under the meter: which runs count, and what stands for their output."""

from __future__ import annotations

import dataclasses
import socket
import sys
from pathlib import Path

import pytest

from heapwright.allocators.takeover import watch_environment
from heapwright.errors import HeapwrightError
from heapwright.measure.prefix import Prefix
from heapwright.workload.execute import Executor, advice, pad_environment
from heapwright.workload.model import Input, Output, Server
from tests.system.workloads import free_port

from .executors import Make, run, sha

# does a run count?


def test_a_run_that_succeeds_has_its_output_and_its_metrics(make: Make) -> None:
    outcome = run(make("echo hello; echo aside >&2"))
    assert (outcome.failure, outcome.digest) == ("", sha("hello\n"))
    assert outcome.run.metrics["peak_rss_bytes"]
    assert outcome.run.stderr_tail == "aside\n"


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("exit 3", "exit status 3"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("kill -KILL $$", "killed by SIGKILL"),
        ("exit 255", "exit status 255"),
        ("exit 127", "exit status 127"),
    ],
)
def test_a_failed_run_has_a_reason_and_no_output(script: str, failure: str, make: Make) -> None:
    outcome = run(make(f"echo partial; {script}"))
    assert outcome.failure == failure
    assert outcome.digest == "", "the output of a failed run does not count"


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("echo one >&2; echo 'no such option: x' >&2; exit 1", "exit status 1: no such option: x"),
        ("echo 'free(): invalid pointer' >&2; kill -ABRT $$", "killed by SIGABRT: free(): invalid pointer"),
        ("printf '  last\\n\\n\\n' >&2; exit 2", "exit status 2: last"),
        ("printf '10%%\\r20%%\\rfailed' >&2; exit 2", "exit status 2: failed"),
        ("printf '\\033[2Jred' >&2; exit 2", "exit status 2: \u241b[2Jred"),
        ("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 2", "exit status 2: " + 200 * "x"),
    ],
)
def test_a_failure_keeps_the_last_words(script: str, failure: str, make: Make) -> None:
    """They follow the kind of failure and ': ', so that failures can be counted by kind."""
    assert run(make(script)).failure == failure


def test_the_stderr_of_a_good_run_is_no_failure(make: Make) -> None:
    assert run(make("echo warning: no cache >&2")).failure == ""
    slow = make("echo waiting >&2; sleep 60", timeout=0.3)
    assert run(slow).failure == "timed out after 0.3 s", "a run that was stopped has no last words"


def test_advice_for_a_server_does_not_ask_it_to_end(make: Make) -> None:
    unready = Server(load=["true"], ready=["false"], ready_timeout=0.2)
    assert advice(run(make("exec sleep 60", server=unready))).startswith(
        "start the server and its load by hand first: "
    )
    assert advice(run(make("echo why >&2; exec sleep 60", server=unready))) == "its last words: why"
    failing = Server(load=["false"], ready=["true"])
    assert advice(run(make("exec sleep 60", server=failing))).startswith(
        "start the server and its load by hand first: "
    )


def test_advice_for_a_program_that_fails_by_itself(make: Make) -> None:
    assert advice(run(make("kill -SEGV $$"))) == "run it by hand first; it must succeed and end"
    assert advice(run(make("exit 127"))) == "run it by hand first; it must succeed and end", "a shell found no command"
    assert advice(run(make("echo why >&2; kill -SEGV $$"))) == "", "the failure says it"
    assert advice(run(make("echo why >&2; sleep 60", timeout=0.3))) == "its last words: why"


def test_an_exit_status_may_be_meant(make: Make, tmp_path: Path) -> None:
    """`grep` without a match: both ways to say so are named, and --stdin where nothing was read."""
    status = "if status 1 is not a failure: --success 0,1, or success = [0, 1] in a workload file"
    empty = "if it reads standard input, which is empty here: --stdin FILE"
    assert advice(run(make("exit 1"))) == f"{status}; {empty}"
    assert advice(run(make("echo why >&2; exit 1"))) == f"{status}; {empty}"
    (tmp_path / "in").write_text("x")
    assert advice(run(make("exit 1", stdin=str(tmp_path / "in")))) == status
    executor = make("exit 3", success=[0, 1])
    executor.workload = dataclasses.replace(executor.workload, path="/w.toml")
    assert advice(run(executor)) == (
        "if status 3 is not a failure: success = [0, 1, 3] in a workload file;"
        ' if it reads standard input, which is empty here: stdin = "FILE"'
    )
    assert run(make("exit 1", success=[0, 1])).hint == ""


def test_output_is_passed_on_to_a_watching_user(make: Make, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    executor = make("echo out; echo err >&2; exit 3")
    with (tmp_path / "seen").open("wb") as seen:
        executor.forward = seen
        outcome = run(executor)
    assert (tmp_path / "seen").read_text() == "out\n"
    assert capfd.readouterr().err == "err\n"
    assert outcome.failure == "exit status 3", "its words were passed on"
    assert outcome.run.output_sha256 == sha("out\n")


def test_the_exit_status_of_a_run(make: Make) -> None:
    def status(executor: Executor) -> int:
        return executor.exit_status(run(executor))

    assert status(make("exit 0")) == 0
    assert status(make("exit 7")) == 7
    assert status(make("exit 7", success=[7])) == 0
    assert status(make("exit 0", success=[7])) == 1
    assert status(make("true", output=Output("files", ["none"]))) == 1
    assert status(make("kill -TERM $$")) == 128 + 15
    ends_by_term = Server(["true"])
    assert status(make("exec sleep 60", server=ends_by_term, output=Output("none"))) == 0
    assert status(make("exec sleep 60", server=Server(["false"]), output=Output("none"))) == 1


def test_statuses_that_count_as_success(make: Make) -> None:
    executor = make("exit $WITH", success=[3, 4])
    assert run(executor, WITH="3").failure == ""
    assert run(executor, WITH="4").failure == ""
    assert run(executor, WITH="0").failure == "exit status 0"


def test_a_run_that_takes_too_long(make: Make) -> None:
    outcome = run(make("sleep 60", timeout=0.3))
    assert outcome.failure == "timed out after 0.3 s"
    assert outcome.run.timed_out


def test_a_command_that_does_not_exist_is_an_error(make: Make) -> None:
    with pytest.raises(HeapwrightError, match="no-such-program"):
        run(make("", command=["no-such-program"]))


# the environment of a run


def test_variables_later_ones_win(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "shell")
    executor = make('echo "$A $B $C $D"', env={"B": "file", "C": "file", "D": "file"})
    outcome = executor.run(Input("default", env={"C": "input", "D": "input"}), {"D": "setting"})
    assert outcome.digest == sha("shell file input setting\n")


def test_the_command_gets_its_arguments_and_directory(make: Make, tmp_path: Path) -> None:
    outcome = run(make('pwd; printf "%s|" "$@"'), Input("i", args=["a b", "*"]))
    assert outcome.digest == sha(f"{tmp_path}\na b|*|")


def test_stdin_of_the_input_before_that_of_the_file(make: Make, tmp_path: Path) -> None:
    for name in ("file", "input"):
        (tmp_path / name).write_text(name)
    executor = make("cat", stdin=str(tmp_path / "file"))
    assert run(executor).digest == sha("file")
    assert run(executor, Input("i", stdin=str(tmp_path / "input"))).digest == sha("input")
    assert run(make("cat")).digest == sha("")


def test_the_padding_is_a_variable_of_that_length(make: Make) -> None:
    assert run(make("echo ${#HEAPWRIGHT_PAD}"), pad=1234).digest == sha("1234\n")
    assert pad_environment({"A": "1"}, 3) == {"A": "1", "HEAPWRIGHT_PAD": "xxx"}
    assert pad_environment({"A": "1"}, 0) == {"A": "1"}


# what stands for the output


def test_compare_none_compares_no_output(make: Make) -> None:
    assert run(make("date +%N", output=Output("none"))).digest == ""


def test_files_stand_for_the_output(make: Make) -> None:
    executor = make("echo $ONE > one; echo $TWO > two; date +%N", output=Output("files", ["one", "two"]))
    first = run(executor, ONE="1", TWO="2").digest
    assert run(executor, ONE="1", TWO="2").digest == first
    assert run(executor, ONE="1", TWO="3").digest != first
    assert run(executor, ONE="2", TWO="1").digest != first


def test_a_run_that_left_no_file_failed(make: Make) -> None:
    executor = make("[ -z $ONE ] || echo 1 > one", output=Output("files", ["one"]), setup=["rm", "-f", "one"])
    assert run(executor, ONE="yes").failure == ""
    assert run(executor).failure == "the output file one is missing"


def test_a_command_may_compare_the_outputs(make: Make) -> None:
    first_line = 'head -1 "$0" > a; head -1 "$1" > b; cmp -s a b'  # the second is the time of day
    compare = ["sh", "-c", first_line, "{reference}", "{output}"]
    executor = make("echo result $N; date +%N", output=Output("command", command=compare))
    first = run(executor, N="1").digest
    assert run(executor, N="1").digest == first
    assert run(executor, N="2").digest == "differs (comparer's status 1)"
    assert run(executor, N="1").digest == first, "the reference stays the first output"


def test_the_comparing_command_has_the_environment_of_the_workload(make: Make) -> None:
    compare = ["sh", "-c", '[ "$RULE" = the-workload ] && [ -z "${WHO-}" ]', "{reference}", "{output}"]
    executor = make("true", output=Output("command", command=compare), env={"RULE": "the-workload"})
    run(executor)
    assert run(executor, WHO="the setting on trial").digest == "same"


def test_a_run_whose_loader_tells_bindings_is_no_reference(make: Make, tmp_path: Path) -> None:
    """The loader may write its messages into the output."""
    compare = ["cmp", "-s", "{reference}", "{output}"]
    executor = make('echo "$OUT"', output=Output("command", command=compare))
    watched = {"OUT": "messages", **watch_environment(tmp_path)}
    assert executor.run(Input("default"), watched).digest == ""
    assert [run(executor, OUT="result").digest for _ in range(2)] == ["same", "same"]


def test_every_input_has_its_own_reference(make: Make) -> None:
    executor = make('echo "$@"', output=Output("command", command=["cmp", "-s", "{reference}", "{output}"]))
    for name in ("a", "b/../c"):
        assert run(executor, Input(name, args=[name])).digest == "same"
        assert run(executor, Input(name, args=["other"])).digest.startswith("differs")


def test_a_failed_run_is_no_reference(make: Make) -> None:
    executor = make(
        'echo "$OUT"; exit $STATUS', output=Output("command", command=["cmp", "-s", "{reference}", "{output}"])
    )
    run(executor, OUT="broken", STATUS="1")
    run(executor, OUT="right", STATUS="0")
    assert run(executor, OUT="right", STATUS="0").digest == "same"


def test_a_comparing_command_that_does_not_start_is_an_error(make: Make) -> None:
    executor = make("true", output=Output("command", command=["no-such-program"]))
    run(executor)
    with pytest.raises(HeapwrightError, match=r"the comparing command does not start: .*no-such-program"):
        run(executor)


# servers


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    return free_port()


FETCH = "import sys, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/').read()"
HELD = "x = bytearray(64 << 20); import runpy; runpy.run_module('http.server', run_name='__main__', alter_sys=True)"


def test_a_server_is_loaded_and_stopped(make: Make, port: int) -> None:
    command = [sys.executable, "-c", HELD, "--bind", "127.0.0.1", str(port)]
    server = Server([sys.executable, "-c", FETCH, str(port)], ready_port=port)
    outcome = run(make("", command=command, server=server, output=Output("none")))
    assert outcome.failure == ""
    assert (outcome.run.metrics["peak_rss_bytes"] or 0) > 64 << 20, "memory is the server's"
    assert outcome.run.exit_code == 128 + 15
    with socket.socket() as again:  # it is gone: the port can be had
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


SERVE = 'trap "echo bye; exit 0" TERM; touch up; while :; do sleep 0.02; done'


def test_readiness_by_a_command_and_a_clean_end(make: Make) -> None:
    server = Server(["true"], ready=["test", "-e", "up"])
    outcome = run(make(SERVE, server=server, setup=["rm", "-f", "up"]))
    assert (outcome.failure, outcome.digest) == ("", sha("bye\n"))


def test_wall_time_is_the_loads(make: Make) -> None:
    server = Server(["sleep", "0.3"], ready=["sh", "-c", "sleep 0.5; test -e up"])
    outcome = run(make(SERVE, server=server, setup=["rm", "-f", "up"]))
    assert outcome.run.series
    assert 0.3 <= (outcome.run.metrics["wall_s"] or 0.0) < outcome.run.series["t"][-1], "waiting does not count"


def test_a_server_without_a_ready_check_may_be_stopped_at_once(make: Make) -> None:
    for _ in range(5):
        outcome = run(make("exec sleep 60", server=Server(["true"]), output=Output("none")))
        assert outcome.failure == ""


def test_load_and_checks_see_the_workloads_variables_and_not_the_settings(make: Make, tmp_path: Path) -> None:
    server = Server(["sh", "-c", 'echo "$WHO ${SETTING:-plain}" > seen'], ready=["sh", "-c", "test $WHO = input"])
    executor = make(SERVE, server=server, env={"WHO": "file"})
    assert run(executor, Input("i", env={"WHO": "input"}), SETTING="on trial").failure == ""
    assert (tmp_path / "seen").read_text() == "input plain\n"


def test_a_server_that_does_not_get_ready_has_a_reason(make: Make) -> None:
    def failure(script: str, server: Server, timeout: float = 20.0) -> str:
        return run(make(script, timeout, server=server, output=Output("none"))).failure

    assert failure("exit 3", Server(["true"], ready=["false"])) == "ended before it was ready"
    words = "echo 'port 80: permission denied' >&2; exit 3"
    assert failure(words, Server(["true"], ready=["false"])) == "ended before it was ready: port 80: permission denied"
    never = Server(["true"], ready=["false"], ready_timeout=0.2)
    assert failure("exec sleep 60", never) == "not ready within 0.2 s: the ready command fails (false)"
    closed = Server(["true"], ready_port=1, ready_timeout=0.2)
    assert failure("exec sleep 60", closed) == "not ready within 0.2 s: port 1 does not answer"
    assert failure("exec sleep 60", Server(["sh", "-c", "exit 4"])) == "the load command failed with status 4"
    crashes = Server(["sleep", "0.3"], ready=["test", "-e", "up"])
    assert failure("touch up; kill -ABRT $$", crashes) in ("killed by SIGABRT", "killed by SIGABRT before it was ready")
    assert failure("kill -SEGV $$", Server(["true"], ready=["false"])) == "killed by SIGSEGV before it was ready"
    assert failure("trap '' TERM; exec sleep 60", Server(["sleep", "60"]), 0.4) in (
        "the load command timed out",
        "timed out after 0.4 s",
    )


def test_a_load_command_that_does_not_start_is_an_error(make: Make) -> None:
    with pytest.raises(HeapwrightError, match=r"the load command does not start: .*no-such-program"):
        run(make("exec sleep 60", server=Server(["no-such-program"]), output=Output("none")))


def test_a_port_in_use_is_said_before_anything_starts(make: Make, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HeapwrightError, match=f"port {port} already answers before the server is started"):
            run(make("touch started", server=Server(["true"], ready_port=port)))
    assert not (tmp_path / "started").exists()


def test_a_ready_command_that_another_server_answers(make: Make, tmp_path: Path) -> None:
    """A port counts only if the ready command names it and succeeds; an address is no port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        asks = ["bash", "-c", f"[ -e other ] && : < /dev/tcp/127.0.0.1/{port}"]
        (tmp_path / "other").touch()
        with pytest.raises(HeapwrightError, match=f"port {port} already answers before the server is started"):
            run(make("touch started", server=Server(["true"], ready=asks)))
        assert not (tmp_path / "started").exists()
        (tmp_path / "other").unlink()
        serve = make("touch other; exec sleep 60", server=Server(["true"], ready=asks), output=Output("none"))
        assert run(serve).failure == "", "the ready command failed before the start"
    (tmp_path / "other").unlink()
    assert run(make("exit 3", server=Server(["true"], ready=asks))).failure == "ended before it was ready"


def test_a_server_that_ends_while_its_ready_command_succeeds(make: Make) -> None:
    """The port is not in the command's words, as with the default port of redis-cli."""
    failure = run(make("sleep 0.2; exit 3", server=Server(["sleep", "0.5"], ready=["true"], idle=0.1))).failure
    assert failure == (
        "exit status 3, and the ready command succeeds without the server: another server may use its port"
    )


# prefixes


def test_a_prefix_that_a_text_ends(make: Make) -> None:
    """The output is compared up to the text; later output does not count, nor does the exit status."""
    outcome = run(make("echo one; echo two; sleep 60; exit 3", prefix=Prefix(output="two")))
    assert (outcome.failure, outcome.digest) == ("", sha("one\ntwo"))
    assert outcome.run.cut


def test_a_prefix_whose_text_never_comes(make: Make) -> None:
    executor = make("echo one", prefix=Prefix(output="two"))
    outcome = run(executor)
    assert outcome.failure == "it ended and did not print 'two'"
    assert executor.exit_status(outcome) == 1


def test_a_prefix_of_a_time_compares_no_output(make: Make) -> None:
    outcome = run(make("while :; do echo on; sleep 0.01; done", prefix=Prefix(seconds=0.5)))
    assert (outcome.failure, outcome.digest, outcome.run.cut) == ("", "", True)
