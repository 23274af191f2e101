"""Reads ELF files, and writes the note of `heapwright link`."""
