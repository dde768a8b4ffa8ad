"""pytest settings that all tests share: a cache of compiled programs, and quick compilation."""

import atexit
import gc
import os
import signal
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers inherit it; threads of several wait for each other

import jax
import pytest
from hypothesis import settings
from quick import compile_quickly

from fedbandit_jax.engine import prepare

collect_ignore = ["audits/controls"]  # read by tests of audits, and by `fedbandit audit --controls`
CACHE = Path(os.environ.get("FEDBANDIT_TEST_CACHE", Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
jax.config.update("jax_traceback_in_locations_limit", 0)  # of lines in programs that nobody reads: a tenth of the time


if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as after `nohup pytest &`, where tests of Ctrl-C would wait
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.set_threshold(100_000, 50, 50)  # tracing makes many small objects that live: a sixth of the time was spent here


settings.register_profile("the same examples in every run", derandomize=True, database=None)


def takes_slow(config):
    """Whether slow tests are among those asked for, as by -m slow, -m "" or -m "slow or not slow"."""
    words = config.option.markexpr
    return "not slow" not in words or "slow" in words.replace("not slow", "")


def pytest_configure(config):
    """Default tests compile quickly, and are the same in every run; hypothesis explores where slow tests are run.

    Slow tests run what users run; to run any test that way: FEDBANDIT_TEST_OPTIMISED=1.
    """
    if takes_slow(config):
        return
    settings.load_profile("the same examples in every run")
    if os.environ.get("FEDBANDIT_TEST_OPTIMISED"):
        return
    jax.config.update("jax_disable_most_optimizations", True)
    compile_quickly()
    if "PYTEST_XDIST_WORKER" in os.environ:  # when a worker has reported, its programs need not be taken apart: seconds
        atexit.register(os._exit, 0)


FIRST = "tests/test_contract", "tests/algos", "tests/engine", "tests/report"


def pytest_collection_modifyitems(items):
    """Tests that play the same runs come first: each of several workers begins with a stretch of the list."""
    items.sort(key=lambda item: next((i for i, room in enumerate(FIRST) if item.nodeid.startswith(room)), len(FIRST)))


def pytest_sessionfinish():
    gc.freeze()  # pytest collects garbage five times before it ends


@pytest.fixture(autouse=True, scope="module")
def few_programs(request):
    """Slow tests keep no programs from file to file: XLA ends where a process holds very many (its memory maps)."""
    yield
    if takes_slow(request.config):
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(20261120)


@pytest.fixture
def same_noise(monkeypatch):
    """Lets all that a test simulates draw the same privacy noise, whatever it is called and wherever it runs."""
    monkeypatch.setattr(prepare, "salt", lambda *marks: ())
