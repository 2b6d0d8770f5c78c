"""`python -m cluster_sim`."""

import sys

from cluster_sim.cli import main

if __name__ == "__main__":
    sys.exit(main())
