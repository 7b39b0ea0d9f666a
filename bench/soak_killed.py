"""The soak with `--kill-seconds`: the live worker dies again and again, and each object must be readable exactly once.

The report is apart from that of the soak, because its seconds belong to no target.
"""

import sys

from bench.soak import main

if __name__ == "__main__":
    sys.exit(main("soak_killed"))
