"""Tests the fingerprint of the machine."""

from __future__ import annotations

import json

from heapwright.measure.host import FINGERPRINT, describe_host, differences


def test_the_description_is_json_and_stable() -> None:
    here = describe_host()
    assert set(FINGERPRINT) <= set(here)
    assert json.loads(json.dumps(here)) == here
    assert describe_host() == here
    assert here["cores"] >= 1
    assert here["page_bytes"] in (4096, 16384, 65536)


def test_a_machine_does_not_differ_from_itself() -> None:
    here = describe_host()
    assert differences(here, json.loads(json.dumps(here))) == []


def test_differences_are_named_with_both_values() -> None:
    here = describe_host()
    assert differences({**here, "kernel": "6.1", "thp": None}, {**here, "kernel": "6.8", "thp": "always"}) == [
        "kernel: 6.1 then, 6.8 now",
        "thp: None then, always now",
    ]


def test_harmless_differences_of_machines_are_ignored() -> None:
    here = describe_host()
    assert differences({**here, "python": "3.8", "os": "other", "memory_bytes": 1, "aslr": "0"}, here) == []
