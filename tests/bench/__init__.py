"""Tests the benchmark tool: alternating rounds, load of other programs, reports, command line."""
