"""With what the graphs of the corpus were captured: packages and their versions, as the manifest has them."""

from __future__ import annotations

from importlib import metadata


def versions(*packages: str, source: str) -> str:
    """Packages with their versions ("torch 2.13.0"), without what a version says of its build; transformers where the source has it."""
    theirs = ("transformers",) if source.startswith("transformers ") else ()
    return ", ".join(f"{package} {metadata.version(package).partition('+')[0]}" for package in (*packages, *theirs))
