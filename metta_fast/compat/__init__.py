"""Serves code that was written for something else: old import paths, and Gymnasium's vector API."""
