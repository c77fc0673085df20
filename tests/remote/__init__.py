"""Tests of remote storage."""
