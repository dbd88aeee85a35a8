"""What is looked at, each check a function of its own that gives evidence."""
