"""`python -m lpot` is `lpot`."""

from lpot.cli import main

main()
