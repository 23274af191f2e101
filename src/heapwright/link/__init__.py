"""Tells whether a program can start threads, without running it, and links an allocator that fits."""
