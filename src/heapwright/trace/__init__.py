"""Records, packs, models and replays allocation traces. The native programs handle events; this package drives them."""
