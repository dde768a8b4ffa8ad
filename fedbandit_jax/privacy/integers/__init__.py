"""Private sums of users' rewards, encoded as integers modulo m: mechanisms, their noise, and the protocol that runs."""
