"""`python -m kimi_k3_specdec`: the command line without the script that an installation puts on the path."""

from .cli import main

main()
