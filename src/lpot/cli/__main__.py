"""`python -m lpot.cli` is `lpot`."""

from lpot.cli import main

main()
