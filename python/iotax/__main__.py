"""`python -m iotax`."""

from iotax.cli import main

main()
