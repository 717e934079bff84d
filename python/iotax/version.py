"""Which iotax this is: for records, pages and files that say who made them."""

__version__ = "0.1.0"
