"""Fast paths: contexts drawn while they are scored, and solves on a GPU."""
