"""Loads, plays and evaluates a trained policy. episodes/, export/ and run/ import it."""
