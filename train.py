"""Trains a placement policy: `python train.py --encoder paper|gnn`, the same as `gnnplace train`."""

from __future__ import annotations

import sys

from gnnplace.start import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
