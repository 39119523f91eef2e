"""`python -m gnnplace`."""

import sys

from gnnplace.cli import main

sys.exit(main())
