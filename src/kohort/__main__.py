"""`python -m kohort` is the `kohort` command."""

from kohort.cli.main import main

main()
