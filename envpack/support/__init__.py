"""What every room stands on: errors, processes, files, limits of text; nothing here knows of models or servers."""
