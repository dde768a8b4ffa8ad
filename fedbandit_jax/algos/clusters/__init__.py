"""Users who come again, in clusters, on many servers."""
