"""Building blocks that know no bandit: pytrees, validation, random streams, linear algebra."""
