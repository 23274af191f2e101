"""Shell lines that a report prints: how to measure a configuration by hand."""

from __future__ import annotations

import shlex

from heapwright.experiment.configuration import Config
from heapwright.study.view import (
    StudyView,
)

_ONLY_IN_FILES = ("input", "env", "setup", "cleanup", "server")


def measure_command(config: Config, view: StudyView, runs: int = 10) -> str:
    """The shell line that measures a configuration by hand, as it stands; empty where there can be none.

    That of a workload file is of its first test input, else of its first. Its settings are for the command alone, as
    they were in the study: set-up and a server's load run without them, and they win over what the file itself sets.
    """
    words = ["heapwright", "measure"]
    prefix = ["--prefix", view.prefix.as_option()] if view.prefix else []
    if not view.workload_file:
        if any(view.workload.get(key) for key in _ONLY_IN_FILES):  # a study of before the file was remembered
            return ""
        start = ["env", *(f"{k}={v}" for k, v in config.env.items())] if config.env else []
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
