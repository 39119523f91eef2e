"""`python -m gnnplace`: the command `gnnplace`, importing nothing from the current folder.

Python puts the current folder first on its path, so a file there that is named like a library's module would be run
(CWE-427). The folder stays on the path only if this package is in it, as in a checkout.
"""

import os
import sys

if not sys.flags.safe_path and sys.path[0] not in ("", os.path.dirname(os.path.dirname(__file__))):
    del sys.path[0]

from gnnplace.start import main

sys.exit(main())
