"""Tells where the memory of a running process is, and whether another malloc can give some of it back."""
