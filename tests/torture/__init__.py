"""Broken on purpose: whole programs under our mallocs, faults injected, hostile input. `make torture` runs the long form."""
