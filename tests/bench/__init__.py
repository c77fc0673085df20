"""The benchmark tool: rounds in turns, other programs' load, report, command line."""
