"""Loops stay loops under vmap, and what does not depend on the lane is computed once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedbandit_jax.core import control
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.control import by_lanes, cond_any, materialize_pair, max_over_lanes

N = jnp.array([[0, 3, 7], [5, 5, 1]])
SEEDS = jnp.array([0.0, 10.0])


def batched(bound):
    """Sums over i < n of something that depends on the seed alone; `bound(n)` ends the loop. Seeds are outside."""

    def loop(n, seed):
        def body(carry):
            i, total = carry
            return i + 1, total + jnp.where(i < n, jnp.sin(seed + i), 0)

        end = bound(n)
        return lax.while_loop(lambda carry: carry[0] < end, body, (jnp.int32(0), jnp.float32(0)))[1]

    return jax.vmap(jax.vmap(loop, (0, None)), (0, 0))


@pytest.mark.parametrize(("bound", "ends", "sines"), [(max_over_lanes, (), (2,)), (lambda n: n, (2, 3), (2, 3))])
def test_the_bound_is_not_batched(bound, ends, sines):
    """Lanes with bounds of their own make the condition an array, and everything in the loop one value for each."""
    (found,) = [e for e in jax.make_jaxpr(batched(bound))(N, SEEDS).eqns if e.primitive.name == "while"]
    (sine,) = [e for e in found.params["body_jaxpr"].eqns if e.primitive.name == "sin"]
    assert sine.outvars[0].aval.shape == sines  # for each seed
    assert found.params["cond_jaxpr"].out_avals[0].shape == ends
    exact = [[np.sin(float(seed) + np.arange(int(n))).sum() for n in row] for row, seed in zip(N, SEEDS)]
    np.testing.assert_allclose(jax.jit(batched(bound))(N, SEEDS), exact, rtol=1e-5, atol=1e-6)


def test_largest():
    """Itself alone, the largest of all lanes under any nesting of vmap, mapped or not."""
    assert max_over_lanes(jnp.int32(4)) == 4
    assert jax.vmap(jax.vmap(max_over_lanes))(N).tolist() == [[7] * 3] * 2
    assert jax.vmap(lambda n, x: max_over_lanes(n) + x, (None, 0))(N[0, 1], jnp.arange(2)).tolist() == [3, 4]
    one_seed = jax.vmap(jax.vmap(lambda n, s: max_over_lanes(n) + 0 * s, (0, None)), (None, 0))
    assert one_seed(N[0], jnp.arange(2)).tolist() == [[7] * 3] * 2
    mapped = lax.map(jax.vmap(max_over_lanes), N)  # a loop is no vmap: its iterations keep their own
    assert mapped.tolist() == [[7] * 3, [5] * 3]


@pytest.mark.parametrize("cpu", [True, False], ids=["fenced", "plain"])
def test_once(key, cpu, monkeypatch):
    """Both arrays as they are, alone and under vmap, whatever k is and whatever the machine."""
    monkeypatch.setattr(control, "on_cpu", lambda: cpu)

    @jax.jit
    def draw(key):
        return [jax.random.uniform(word, (6,)) for word in jax.random.split(key)]  # bits, however compiled

    drawn = jax.jit(lambda key, k: materialize_pair(lambda: draw(key), k))
    for k in (0, 5, -1, 2**31 - 1):
        np.testing.assert_array_equal(drawn(key, k), draw(key))
    keys = jax.random.split(key, 3)
    lanes = jax.jit(jax.vmap(lambda key, k: materialize_pair(lambda: draw(key), k), (0, None)))(keys, 1)
    np.testing.assert_array_equal(np.stack(lanes), np.stack([draw(k) for k in keys], 1))


@pytest.mark.skipif(not on_cpu(), reason="elsewhere draws are not copied")
def test_once_for_all_lanes():
    """Lanes that share a key share the loop that draws: nothing in it has their axis."""

    def one(key, x):
        return x * materialize_pair(lambda: [jax.random.normal(key, (5,)), jnp.ones(5)], jnp.int32(0))[0]

    jaxpr = jax.make_jaxpr(jax.vmap(one, (None, 0)))(jax.random.key(0), jnp.arange(3.0))
    (found,) = [e for e in jaxpr.eqns if e.primitive.name == "while"]
    assert all(3 not in v.aval.shape for v in found.outvars)


@pytest.mark.skipif(not on_cpu(), reason="elsewhere draws are not copied")
def test_once_for_several_readers(key):
    """Draws are stored, as complex numbers, if lanes differ in what reads them, and drawn in place otherwise."""

    def draw(key):
        return list(jax.random.uniform(key, (2, 5)))

    def one(key, x, k):
        first, second = materialize_pair(lambda: draw(key), k, readers={"x": x})
        return x * first + second

    keys, x, k = jax.random.split(key, 3), jnp.arange(1.0, 5), jnp.int32(0)
    drawn = np.array([draw(key) for key in keys])[:, :, None]
    for axis, numbers in ((0, x), (None, x[0])):
        program = jax.jit(jax.vmap(jax.vmap(one, (None, axis, None), axis_size=4), (0, None, None)))
        expected = np.broadcast_to(numbers, 4)[:, None] * drawn[:, 0] + drawn[:, 1]
        np.testing.assert_allclose(program(keys, numbers, k), expected, rtol=1e-6)
        assert ("c64[" in program.lower(keys, numbers, k).compile().as_text()) == (axis == 0)


def solve_if(predicate, x, costly=False):
    return cond_any(predicate, lambda x: jnp.linalg.inv(x), x, costly=costly)


@pytest.mark.parametrize(("cpu", "costly"), [(True, False), (False, False), (False, True)])
def test_cond_any_chooses_by_lane(cpu, costly, monkeypatch):
    """On a CPU, where it branches, and elsewhere, where it may select; a row not wanted may have no inverse."""
    monkeypatch.setattr(control, "on_cpu", lambda: cpu)
    solve = functools.partial(solve_if, costly=costly)
    lanes, nested = jax.jit(jax.vmap(solve)), jax.jit(jax.vmap(jax.vmap(solve, (0, None)), (None, 0)))
    for wanted in ([False, False], [True, False], [True, True]):
        x = np.stack([2 * np.eye(3), 4 * np.eye(3) if wanted[1] else np.zeros((3, 3))]).astype(np.float32)
        expected = [np.linalg.inv(one) if want else one for one, want in zip(x, wanted)]
        np.testing.assert_allclose(lanes(np.array(wanted), x), expected)
        found = nested(np.array(wanted), x[:1])[0]
        np.testing.assert_allclose(found, [np.linalg.inv(x[0]) if want else x[0] for want in wanted])


def branches(function):
    """Branches (conditionals, or loops of one turn) of a function under two vmaps, and what is outside of them."""
    x = jnp.broadcast_to(jnp.eye(3), (4, 3, 3))
    jaxpr = jax.make_jaxpr(jax.vmap(jax.vmap(function, (0, None)), (None, 0)))(jnp.zeros(2, bool), x)
    found = [e for e in jaxpr.eqns if e.primitive.name in ("cond", "while")]
    return found, [e for e in jaxpr.eqns if e not in found]


@pytest.mark.parametrize(
    ("cpu", "costly", "kind"), [(True, False, "cond"), (True, True, "cond"), (False, True, "while"), (False, False, "")]
)
def test_cond_any_is_a_branch_unless_it_would_wait_for_the_host(cpu, costly, kind, monkeypatch):
    """Under two vmaps: one scalar predicate, the matrices are inverted in one of its branches and nowhere else."""
    monkeypatch.setattr(control, "on_cpu", lambda: cpu)
    found, others = branches(lambda predicate, x: solve_if(predicate, x, costly))
    assert [branch.primitive.name for branch in found] == [kind] * bool(kind)
    assert ("lu" in str(others)) == (not kind)
    assert "cond[" not in str(others)
    for branch in found:
        assert "lu" in str(branch.params["branches" if cpu else "body_jaxpr"])
        assert branch.invars[0].aval.shape == () if cpu else branch.params["cond_jaxpr"].eqns == []


def test_lanes_of_all_vmaps_are_counted():
    """Also of those whose argument is the same in all lanes, beside one that is not."""

    def scaled(x, y):
        return by_lanes(lambda n: lambda x, y: (n * x, n * y), x, y)

    x, y = jnp.arange(3.0), jnp.arange(2.0)
    both = jax.jit(jax.vmap(jax.vmap(scaled, (0, None)), (None, 0)))(x, y)
    np.testing.assert_array_equal(both[0], np.tile(6 * x, (2, 1)))
    np.testing.assert_array_equal(both[1], np.tile(6 * y[:, None], (1, 3)))
    assert scaled(x, y)[0].tolist() == x.tolist()


def test_rows_are_put_in_their_places(monkeypatch):
    """By a GPU each as the result of one more select, which is computed, and by a CPU as it is."""

    def rows(k):
        return control.put_row((jnp.zeros((3, 2)), jnp.zeros(3, jnp.int32)), k + 1, (jnp.ones(2), jnp.int32(5)), k)

    selects = []
    for cpu in (True, False):
        monkeypatch.setattr(control, "on_cpu", lambda cpu=cpu: cpu)
        assert [x.tolist() for x in rows(jnp.int32(0))] == [[[0, 0], [1, 1], [0, 0]], [0, 5, 0]]
        selects.append(str(jax.make_jaxpr(lambda k: rows(k))(jnp.int32(0))).count("select_n"))
    assert selects[1] == selects[0] + 2
