"""Trust models: who adds the noise, how much, and what it proves."""
