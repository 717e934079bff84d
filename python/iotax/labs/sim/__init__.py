"""The lab that exists in virtual time only."""
