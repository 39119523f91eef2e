"""Runtimes: the rules and the order by which other programs execute a placed step."""
