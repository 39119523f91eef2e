"""`python -m gnnplace`: as `gnnplace`, which imports nothing from the current folder.

Python puts that folder first on its path, where a file named like a module of a library would be run (CWE-427). It
stays only where this package itself is found there, as in a checkout.
"""

import os
import sys

if not sys.flags.safe_path and sys.path[0] not in ("", os.path.dirname(os.path.dirname(__file__))):
    del sys.path[0]

from gnnplace.start import main

sys.exit(main())
