import subprocess
import sys

import numpy as np
import pytest

import fedbandit_jax as fb


def test_is_what_replay_takes():
    table = fb.data.Queries(np.eye(4, dtype=np.float32), np.array([1, 3]), np.full(4, 0.5, np.float32), "toy")
    assert fb.envs.replay(**table.arguments(), n_agents=2).spec.n_arms == 3
    assert repr(table) == "Queries('toy', 4 rows, 2 queries, dim 4)"


@pytest.mark.slow
def test_importing_data_needs_no_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None; import fedbandit_jax.data;"
        "sys.exit(any(m.startswith('sklearn.') for m in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
