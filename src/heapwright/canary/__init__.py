"""Compares two sets of live instances side by side: reads them, keeps the readings, and judges the difference."""
