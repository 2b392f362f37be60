"""One module a paper; every module here is found by name."""
