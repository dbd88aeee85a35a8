"""What envpack can use on this machine, and how to get what is missing."""
