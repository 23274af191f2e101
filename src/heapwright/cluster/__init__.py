"""Many machines: the same study on a Dask cluster, or as files for job arrays."""
