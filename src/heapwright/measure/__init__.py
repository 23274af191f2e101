"""Drives the native meter and reads what it writes."""
