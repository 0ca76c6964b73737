"""python -m probagg"""

import os
import sys

# Python looks for modules in the current folder first, which may be a run that somebody sent.
if sys.path and sys.path[0] == os.getcwd():
    del sys.path[0]

from probagg.app.cli import main

if __name__ == "__main__":
    main()
