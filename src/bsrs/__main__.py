"""`python -m bsrs` is `bsrs`."""

from bsrs.cli import main

main()
