"""Allocators side by side: `compare` on one program, `bench` on the benchmark suite."""
