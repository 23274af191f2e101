"""Counts false claims of the confirmation: the real `confirm` and `judge_pairs` on simulated machines.

The default and three picks are the same program on a machine that drifts and jumps; in the second test one of them is
really faster. Blocks, random order, stopping rule, intervals, rank test and Holm are the real ones.
"""

from __future__ import annotations

import random

import pytest

from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.runner import LocalRunner
from heapwright.report.progress import SilentProgress
from heapwright.study.confirmation import judge_pairs
from heapwright.study.options import Options
from heapwright.study.view import Confirmation
from heapwright.tuning.confirm import Rows, confirm
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input
from tests import needs

from ..interleaving.fakes import MemoryStore
from .fakes import World, read_settings

OPTIONS = Options(pairs_min=10, pairs_max=20)
CONFIGS = [Config(1, "toy", {}, {})] + [
    Config(i, "toy", {"cache": str(i)}, {"TOY": f"toy.cache={i}"}) for i in (2, 3, 4)
]
INPUTS = [Input("default")]


class Machine:
    """Runs a program with noisy `cpu_s` and `peak_rss_bytes`; its speed drifts and sometimes jumps."""

    def __init__(self, seed: int, faster: float) -> None:
        self.rng = random.Random(seed)
        self.speed = 0.0
        effect = {"4": {"cpu_s": 1 - faster}}
        self.world = World(effect=lambda s, _i: effect.get(s.get("cache", ""), {}), drift=lambda _n: self.speed)

    def run(self, input_: Input, env: dict[str, str], pad: int, _stop: object = None) -> Outcome:
        self.speed += self.rng.gauss(0, 0.005)
        if self.rng.random() < 0.05:
            self.speed += self.rng.choice([-0.1, 0.1])
        wandered = self.speed
        self.speed += self.rng.gauss(0, 0.02)
        outcome = self.world.run(input_, read_settings(env), pad)
        self.speed = wandered
        for metric in set(outcome.run.metrics) - set(OPTIONS.objectives):
            del outcome.run.metrics[metric]
        return outcome


def study(seed: int, faster: float = 0.0) -> dict[int, dict[str, Confirmation]]:
    """One confirmation."""
    store = MemoryStore()
    blocks = Blocks(store, LocalRunner(Machine(seed, faster)), seed, SilentProgress())  # type: ignore[arg-type]
    confirm(CONFIGS[0], Rows(tuple(CONFIGS[1:]), (), OPTIONS.pairs_min), blocks, INPUTS, OPTIONS)
    return judge_pairs(list(store.runs.values()), {c.id: c for c in CONFIGS}, 1, OPTIONS)


def claims(found: dict[int, dict[str, Confirmation]], verdict: str) -> set[tuple[int, str]]:
    return {(id_, m) for id_, metrics in found.items() for m, c in metrics.items() if c.verdict == verdict}


@pytest.mark.longer
def test_studies_of_nothing_seldom_claim_a_gain() -> None:
    studies = needs.repeats(250, 100)
    wrong = sum(bool(claims(study(seed), "better")) for seed in range(studies))
    assert wrong / studies <= 0.06


def test_a_real_gain_is_seen_all_the_same() -> None:
    studies = 40
    found = [claims(study(seed, faster=0.08), "better") for seed in range(studies)]
    assert sum((4, "cpu_s") in f for f in found) / studies >= 0.8
    assert sum(bool(f - {(4, "cpu_s")}) for f in found) / studies <= 0.06


def test_the_machine_would_fool_an_unpaired_comparison() -> None:
    """Shows why blocks are needed: the same machine, all runs of the default before those of a pick, a rank test."""
    from scipy.stats import mannwhitneyu

    wrong = 0
    for seed in range(100):
        machine = Machine(seed, 0.0)
        times = [machine.run(INPUTS[0], {}, i).run.metrics["cpu_s"] or 0.0 for i in range(20)]
        wrong += float(mannwhitneyu(times[:10], times[10:]).pvalue) < 0.05
    assert wrong / 100 > 0.25
