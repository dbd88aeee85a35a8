"""Requirements → lock: every package by its hash, for one target; and pip packages by uv."""
