"""Retrieve with a trained retriever: ``python infer.py runs/… --data … --output …``."""

import sys

from grls.cli import main

if __name__ == "__main__":
    sys.exit(main(["retrieve", *sys.argv[1:]]))
