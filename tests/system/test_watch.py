"""Tests `heapwright watch` while a `tune` runs."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Heapwright


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.long
def test_a_running_study_is_watched_to_its_end(heapwright: Heapwright) -> None:
    words = ("--budget", "3", "--minimize", "cpu", "--allocators", "glibc", "--study", "a.study", "-q")
    tune = heapwright.start("tune", *words, "--", "perl", "-e", "1")
    watch = None
    try:
        until = time.monotonic() + 120
        while heapwright("apply", "a.study").err.count("no such study") and time.monotonic() < until:
            assert tune.poll() in (None, 0)
        watch = heapwright.start("watch", "a.study", "--port", "0", "--every", "0.1")
        assert watch.stdout is not None
        address = watch.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        assert "data-state=" in fetched(address)
        assert tune.wait(240) == 0
        time.sleep(0.2)
        page = fetched(address)
        assert "Unfinished" not in page
        assert f'data-state="{fetched(f"{address}state")}"' in page
        os.kill(watch.pid, signal.SIGINT)
        assert watch.wait(30) == 130
    finally:
        for process in (tune, watch):
            if process is not None and process.poll() is None:
                process.kill()


def test_files_that_cannot_be_watched_are_refused_at_once(heapwright: Heapwright) -> None:
    done = heapwright("watch", "no.study")
    assert done.status == 2
    assert done.err == "heapwright: no such study: no.study ('heapwright tune -- CMD' makes one)\n"
    done = heapwright("watch", "no.study", "--port", "70000")
    assert done.status == 2
    assert "is not a port" in done.err
