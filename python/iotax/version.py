"""Which iotax this is: for records, pages and files that say who made them."""

__version__ = "0.1.0"


def how_to_install(extra: str) -> str:
    """What brings the packages of an extra, for messages."""
    return f"pip install 'iotax[{extra}]', or `make develop` in a checkout"
