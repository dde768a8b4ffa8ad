"""Building blocks independent of bandits: pytrees, validation, random streams, linear algebra."""
