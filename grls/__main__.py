"""``python -m grls`` is the command ``grls``, where the folder of commands is not on the path."""

import sys

from grls.cli import main

if __name__ == "__main__":
    sys.exit(main())
