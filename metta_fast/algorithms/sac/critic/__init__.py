"""Kinds of critics beside the plain one: distributions of the return, batch renormalisation."""
