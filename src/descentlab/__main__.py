"""`python -m descentlab` is the command line."""

from descentlab.cli import main

main()
