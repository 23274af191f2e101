"""heapwright finds, proves and ships the best malloc for a program."""

__version__ = "0.1.0"
SCHEMA_VERSION = 1  # of every JSON file that heapwright writes
