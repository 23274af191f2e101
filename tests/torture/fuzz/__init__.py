"""Fuzzes our parsers: harnesses in C++ (CMakeLists.txt) and Python (targets.py)."""
