"""Runs the native meter and reads its output."""
