"""Runs a study on many machines: on a Dask cluster, or through files for job arrays."""
