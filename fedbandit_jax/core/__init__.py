"""Building blocks that know nothing about bandits: pytrees, validation, random streams, linear algebra."""
