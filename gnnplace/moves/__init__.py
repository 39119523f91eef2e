"""Moves of whole placements: which there are, what a timeline says of a placement, and what it says of each move from
there.
"""
