"""Broken on purpose: whole programs under our mallocs, faults injected, hostile input; `make torture` for all of it."""
