"""Hears that this machine will be taken away: metadata services of clouds, and schedulers' signals."""
