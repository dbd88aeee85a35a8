"""A store that machines share, in an object store or a folder: records by their keys, blobs, claims."""
