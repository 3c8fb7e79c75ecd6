"""Train one stage: ``python train.py retrieve --config configs/retrieve.yaml --config …``."""

import sys

from grls.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
