"""One module for each format of requirements; `envpack.requirements.format` finds them."""
