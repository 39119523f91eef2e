"""Text of others as it is printed: one line of bounded length, in which
nothing moves the cursor or turns the text around (CWE-150).
"""

from __future__ import annotations

MOST_CHARACTERS = 4000


def printable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""`text` as one line: what is not printable is escaped, and of more than `most` characters the rest is counted
    alone.

    Not printable are control characters, line ends, and marks that are not seen, such as those that change the
    direction of text.

    >>> printable("conv\x1b[2J\u202e\n1")
    'conv\\x1b[2J\\u202e\\n1'
    >>> printable("abcdef", 3)
    'abc... (6 characters)'
    """
    kept = text[:most]
    if not kept.isprintable():
        kept = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in kept)
    return kept if len(text) <= most else f"{kept}... ({len(text):,} characters)"
