"""AMD's pseudocode comes with tinygrad, which needs Python 3.11; from there on a missing tinygrad is a failure."""

import sys

collect_ignore_glob = ["test_*.py"] if sys.version_info < (3, 11) else []
