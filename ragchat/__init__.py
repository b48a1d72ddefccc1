"""Retrieval in front of chat completion calls."""
