"""`metta-fast monitor`: shows the machine and a running training; imported by cli.py."""
