"""Measures configurations in randomised blocks: the interleaving, the runners, the budget and the statistics."""
