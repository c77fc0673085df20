"""Tools that every benchmark uses: child processes, alternating rounds, machine load, reports."""
