"""Stores. Each is imported by its module, so that none brings the dependencies of another."""
