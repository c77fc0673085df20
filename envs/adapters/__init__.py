"""Adapts the environments of other libraries, one file for each. Each library is imported when it is used."""
