"""Placements as other programs read them, a file for each target (docs/exporting.md)."""
