"""Packs the native files of chosen platforms, for machines and images without Python."""
