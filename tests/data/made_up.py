"""Small made-up files in the formats of MovieLens and MSLR, which may not be redistributed."""

import numpy as np

HEADER = "userId,movieId,rating,timestamp\n"
PARTS = ("train.txt", "vali.txt", "test.txt")


def ratings(n_users=60, n_movies=40, seed=0):
    """Rows (user, movie, rating, timestamp) of three tastes; users and movies differ in activity."""
    rng = np.random.default_rng(seed)
    users, movies = 5 * np.arange(1, n_users + 1), 7 * np.arange(1, n_movies + 1)
    liked = np.where((users[:, None] + movies) % 3 == 0, 0.7, 0.2) * rng.uniform(0.4, 1, (n_users, 1))
    rows = np.argwhere(rng.random((n_users, n_movies)) < liked)
    return [(users[u], movies[i], rng.integers(1, 11) / 2, 964982703 + u * i) for u, i in rows]


def write(folder, rows, end="\n"):
    """Writes the ratings.csv of MovieLens."""
    folder.mkdir(parents=True, exist_ok=True)
    text = HEADER + "".join(",".join(map(str, row)) + "\n" for row in rows)
    (folder / "ratings.csv").write_bytes(text.replace("\n", end).encode())
    return folder / "ratings.csv"


def lines(sizes, *, first_query=1, seed=0):
    """Documents of MSLR by query: relevance, qid, all 136 features, columns of very different sizes."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** np.linspace(-3, 6, 136)
    rows = []
    for query, size in enumerate(sizes, first_query):
        for _ in range(size):
            values = np.where(rng.random(136) < 0.3, 0, rng.lognormal(size=136) * scales)
            relevance = min(4, int(6 * values[130] / (1 + values[126:131].sum())))
            features = " ".join(f"{f}:{value:.6g}" for f, value in enumerate(values, 1))
            rows.append(f"{relevance} qid:{query} {features} \n")
    return rows


def write_fold(folder, parts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(PARTS, parts):
        (folder / name).write_text("".join(rows))
