"""Compares two sets of live instances side by side: reads them, keeps the samples, and judges the difference."""
