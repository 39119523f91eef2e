"""The version of the package, as placements and run records name it."""

VERSION = "0.1.0"
