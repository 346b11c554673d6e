"""``python -m schemas`` is ``python -m schemas.export``."""

import sys

from schemas.export import main

if __name__ == "__main__":
    sys.exit(main())
