"""Runs experiments: programs, search methods, seeds and budgets, and compares the methods."""
