"""Work on many machines: tasks that a dask cluster carries out, and that no machine does twice."""
