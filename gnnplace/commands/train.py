"""`gnnplace train`: every argument goes to the trainer, which reads its configuration from them."""

from __future__ import annotations

from gnnplace.training.cli_train import main

__all__ = ["main"]
