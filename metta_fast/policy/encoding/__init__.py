"""Encodes leaves of an observation that are more than plain numbers: images and symbols."""
