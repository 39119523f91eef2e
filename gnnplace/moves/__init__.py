"""Moves of placements: how they are drawn, the situation of a placement by its timeline, and the features of a move."""
