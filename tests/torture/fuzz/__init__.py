"""Harnesses over our parsers: C++ (CMakeLists.txt) and Python (targets.py)."""
