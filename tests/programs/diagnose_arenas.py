"""Fills and empties CPython's arenas, prints what the interpreter counts, and waits. Runs on Python 3.8 and newer.

Usage: diagnose_arenas.py CASE

    drop    allocates 100000 lists of objects and strings, and keeps each fiftieth
    small   allocates nothing
    fork    the same as drop; then a child waits, and its number is printed
    busy    allocates and frees for ever
"""

import os
import random
import sys

case = sys.argv[1]
random.seed(1)
kept: "list[object]" = []
for _number in range(100000 if case in ("drop", "fork") else 0):
    kept.append([object() for _ in range(random.randrange(5))] + ["x" * random.randrange(400)])
kept[:] = [one for number, one in enumerate(kept) if number % 50 == 0]
pid = os.getpid()
if case == "fork":
    child = os.fork()
    pid = child or os.getpid()
if pid == os.getpid() and case != "busy":
    os.dup2(1, 2)
    sys._debugmallocstats()
if pid == os.getpid() or case != "fork":
    os.write(1, b"process %d\n" % pid)
while case == "busy":
    kept.append(str(len(kept)))
    if len(kept) > 50000:
        kept.clear()
os.read(0, 1)
