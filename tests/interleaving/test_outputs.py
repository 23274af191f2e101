"""Tests the rule on outputs: equal to the reference's, unless that changes by itself."""

from __future__ import annotations

import hashlib

import pytest

from heapwright.interleaving.outputs import OutputCheck


def test_a_candidate_must_print_what_the_reference_prints() -> None:
    outputs = OutputCheck()
    assert not outputs.learn("a", "1")
    assert not outputs.changed("a", "1")
    assert outputs.changed("a", "2")
    assert not outputs.any_unstable


def test_an_unstable_output_is_reported_once_and_no_longer_checked() -> None:
    outputs = OutputCheck()
    assert [outputs.learn("a", digest) for digest in "1121"] == [False, False, True, False]
    assert not outputs.learn("a", "3")
    assert not outputs.changed("a", "4")
    assert outputs.any_unstable


def test_inputs_are_independent() -> None:
    outputs = OutputCheck()
    outputs.learn("a", "1")
    outputs.learn("a", "2")
    outputs.learn("b", "1")
    assert outputs.changed("b", "2")


def test_errors_of_a_load_count_while_the_reference_has_none() -> None:
    outputs = OutputCheck()
    failed = {"load_errors": 7.0, "load_operations": 10.0}
    assert outputs.difference("a", "", failed, "the default") == "", "no run of the reference is known yet"
    outputs.learn("a", "", {"load_errors": 0.0, "load_operations": 10.0})
    assert outputs.difference("a", "", {"load_errors": 0.0}, "the default") == ""
    assert outputs.difference("a", "", failed, "the default") == (
        "its load had 7 errors in 10 operations (70%), and the loads of the default had none"
    )
    outputs.learn("a", "", {"load_errors": 1.0, "load_operations": 10.0})
    assert outputs.difference("a", "", failed, "the default") == ""


@pytest.mark.parametrize("digest", ["", hashlib.sha256(b"").hexdigest()])
def test_a_run_without_output_that_takes_far_less_did_less_work(digest: str) -> None:
    """As a script whose program fails, if the script ignores that."""
    outputs = OutputCheck()
    cheap = {"cpu_s": 0.09, "peak_rss_bytes": 4e6}
    assert outputs.difference("a", digest, cheap, "the default") == "", "no run of the reference is known yet"
    outputs.learn("a", digest, {"cpu_s": 1.0, "peak_rss_bytes": 1e7})
    outputs.learn("a", digest, {"cpu_s": 1.1, "peak_rss_bytes": None})
    assert outputs.difference("a", digest, cheap, "the default").endswith("the default: it did less work")
    others: list[dict[str, float | None]] = [
        {"cpu_s": 0.11}, {"peak_rss_bytes": 6e6}, {"cpu_s": None}, {"load_operations": 10.0}
    ]  # fmt: skip
    for more in others:
        assert outputs.difference("a", digest, {**cheap, **more}, "the default") == ""
    outputs.learn("b", "1", {"cpu_s": 1.0, "peak_rss_bytes": 1e7})
    assert outputs.difference("b", "1", cheap, "the default") == "", "the same output shows the same work"


def test_outputs_are_not_checked_without_a_digest_or_a_reference() -> None:
    outputs = OutputCheck()
    assert not outputs.changed("a", "1")
    assert not outputs.learn("a", "")
    assert not outputs.learn("a", "1")
    assert not outputs.changed("a", "")
