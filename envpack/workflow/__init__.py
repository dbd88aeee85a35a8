"""What the commands do: the steps of a build, a lock, a matrix of stubs and the cache, in order."""
