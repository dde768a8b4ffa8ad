"""Private sums of integers: users' rewards in a ring."""
