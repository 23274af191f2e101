"""Shell lines that a report prints: how to measure a configuration by hand."""

from __future__ import annotations

import shlex

from heapwright.interleaving.configuration import Config
from heapwright.study.view import StudyView

_ONLY_IN_FILES = ("input", "env", "setup", "cleanup", "server")


def measure_command(config: Config, view: StudyView, runs: int = 10) -> str:
    """The shell line that measures a configuration by hand, ready to paste; empty if there is none.

    For a workload file it measures the first test input, or the first input. As in the study, the settings apply to
    the command alone and override the file's own environment; set-up and a server's load run without them.

    Args:
        config: the configuration to measure.
        view: the study.
        runs: number of runs.
    """
    if view.recordings is not None:
        held_out = [r.path for r in view.recordings.inputs.values() if r.held_out]
        paths = held_out or [r.path for r in view.recordings.inputs.values()]
        settings = [word for k, v in config.env.items() for word in ("--set", f"{k}={v}")]
        verb = "synth" if "model" in view.recordings.kinds else "replay"
        return shlex.join(["heapwright", verb, paths[0], "-n", str(runs), *settings])
    words = ["heapwright", "measure"]
    prefix = ["--prefix", view.prefix.as_option()] if view.prefix else []
    if not view.workload_file:
        # Older studies do not keep the path of the workload file.
        if any(view.workload.get(key) for key in _ONLY_IN_FILES):
            return ""
        start = ["env", *(f"{k}={v}" for k, v in config.env.items())] if config.env else []
        container = view.workload.get("container")
        if container:
            start = []
            words += ["--container", container["image"]]
            # one word, because the value begins with a hyphen
            words += [f"--container-args={shlex.join(container['args'])}"] if container["args"] else []
            words += [word for k, v in config.env.items() for word in ("--env", f"{k}={v}")]
        success = view.workload.get("success") or [0]
        words += ["-n", str(runs)]
        words += ["--success", ",".join(map(str, success))] if success != [0] else []
        words += ["--stdin", stdin] if (stdin := view.workload.get("stdin")) else []
        return shlex.join([*start, *words, *prefix, "--", *view.command])
    inputs = view.workload.get("input", [])
    name = next((i["name"] for i in inputs if i.get("split") == "test"), inputs[0]["name"] if inputs else "")
    words += ["--workload", view.workload_file, *(["--input", name] if name else []), *prefix]
    settings = [word for k, v in config.env.items() for word in ("--env", f"{k}={v}")]
    return shlex.join([*words, "-n", str(runs), *settings])
