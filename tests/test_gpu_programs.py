"""How `python tests/gpu_programs.py` counts what a GPU would do, on a program small enough to count by hand."""

import jax
import pytest
from gpu_programs import KNOWN, LIMITS, Turn, assembled, count, hot_loop, programs, rounded_by_cublas, verdict

from fedbandit_jax.engine.runners import make_runner

LOOP = 'while(%x), condition=%more, body=%{}, backend_config={{"known_trip_count":{{"n":"{}"}}}}'
HLO = f"""HloModule jit_advance
%rare (x: f32[2]) -> f32[2] {{
  %one = f32[2]{{0}} fusion(%x), kind=kLoop, calls=%fused
  ROOT %two = (f32[2]{{0}}, /*index=1*/s32[]) custom-call(%one), custom_call_target="cusolver_potrf_ffi"
}}
%usual (x: f32[2]) -> f32[2] {{
  ROOT %y = f32[2]{{0}} copy(%x)
}}
%search (x: f32[2]) -> f32[2] {{
  ROOT %y = f32[2]{{0}} fusion(%x), kind=kLoop, calls=%fused
}}
%round (x: f32[2]) -> f32[2] {{
  %x = f32[2]{{0}} parameter(0)
  %a = f32[2]{{0}} fusion(%x), kind=kInput, calls=%fused
  %s = f32[2]{{0}} copy-start(%a)
  %d = f32[2]{{0}} copy-done(%s)
  %w = f32[2]{{0}} while(%d), condition=%more, body=%search
  ROOT %c = f32[2]{{0}} conditional(%w, %a, %a), true_computation=%rare, false_computation=%usual
}}
%step (x: f32[2]) -> f32[2] {{
  %r = f32[2]{{0}} {LOOP.format("round", 25)}
  ROOT %b = f32[2]{{0}} copy(%r)
}}
ENTRY %main (x: f32[2]) -> f32[2] {{
  ROOT %l = f32[2]{{0}} {LOOP.format("step", 7)}
}}
"""


def test_what_the_assembler_tells():
    report = (
        "    0 bytes stack frame, {} bytes spill stores, {} bytes spill loads\nptxas info    : Used {} registers, used"
    )
    assert assembled(report.format(272, 300, 255) + report.format(0, 0, 58)) == {"registers": 255, "spills": 300}
    assert assembled("") == {"registers": 0, "spills": 0}


def test_a_turn():
    """A fusion, a copy and the shorter branch in every turn; what is in the other and in a loop waits for the host."""
    assert count(HLO, 25) == Turn(kernels=3, rare=3, waits=2)
    assert count(HLO, 7) == Turn(kernels=4, rare=3, waits=2)
    assert count(HLO, None) == Turn(kernels=1, rare=0, waits=0)
    with pytest.raises(ValueError, match="which are 25, 7, None, got 3"):
        count(HLO, 3)


def test_products_that_are_rounded():
    call = '  %g = f32[3,3] custom-call(%a, %b), custom_call_target="__cublas${}", backend_config={{"p":["{}","{}"]}}'
    assert rounded_by_cublas(call.format("gemm", "HIGHEST", "HIGHEST")) == 0
    assert rounded_by_cublas(call.format("triangularSolve", "", "")) == 0
    assert rounded_by_cublas("\n".join(call.format(name, "DEFAULT", "DEFAULT") for name in ("gemm", "lt$matmul"))) == 2


def test_verdict():
    """What is known may not get worse."""
    good = dict.fromkeys(LIMITS, 0)
    assert verdict("linear alone", good) == []
    assert verdict("linear alone", good | {"tf32": 1}) == ["linear alone: tf32 must be <= 0, got 1"]
    assert verdict("linear alone", {"error": "stopped after 300 s"}) == ["linear alone: stopped after 300 s"]
    assert set(KNOWN) <= set(programs())
    for name, known in KNOWN.items():
        assert not verdict(name, good | known)
        for what, most in known.items():
            assert most > LIMITS[what]
            assert verdict(name, good | {what: most + 1}) == [f"{name}: {what} must be <= {most:g}, got {most + 1:g}"]


def test_what_is_compiled_is_the_loop_of_the_driver():
    env, algo, *_, horizon = programs()["linear alone"]
    bound = make_runner(env, algo.bind(env.spec, horizon), horizon)
    function, (leaves, keys, worlds, states, *steps) = hot_loop([bound], 3, 2)
    assert keys.shape == (3,)
    played = jax.eval_shape(function, leaves, keys, worlds, states, *steps)[:2]
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(played)] == [
        (x.shape, x.dtype) for x in jax.tree.leaves((worlds, states))
    ]
