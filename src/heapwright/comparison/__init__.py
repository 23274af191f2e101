"""Compares allocators: `compare` on one program, `bench` on the benchmark suite."""
