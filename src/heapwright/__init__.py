"""heapwright finds, proves and ships the best malloc for a program."""

__version__ = "0.1.0"
