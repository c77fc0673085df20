"""Describes how leaves of an observation are encoded: sizes of the networks, and notes for the user. No torch here."""
