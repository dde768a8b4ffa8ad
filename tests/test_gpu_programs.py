"""How `python tests/gpu_programs.py` counts what a GPU would do, on a program small enough to count by hand."""

import pytest
from gpu_programs import KNOWN, LIMITS, Turn, count, programs, rounded_by_cublas, verdict

LOOP = 'while(%x), condition=%more, body=%{}, backend_config={{"known_trip_count":{{"n":"{}"}}}}'
HLO = f"""HloModule jit_advance

%fused (p: f32[2]) -> f32[2] {{
  %p = f32[2]{{0}} parameter(0)
  ROOT %e = f32[2]{{0}} exponential(%p)
}}

%rare (x: f32[2]) -> f32[2] {{
  %x = f32[2]{{0}} parameter(0)
  %one = f32[2]{{0}} fusion(%x), kind=kLoop, calls=%fused
  ROOT %two = (f32[2]{{0}}, /*index=1*/s32[]) custom-call(%one), custom_call_target="cusolver_potrf_ffi"
}}

%usual (x: f32[2]) -> f32[2] {{
  %x = f32[2]{{0}} parameter(0)
  ROOT %y = f32[2]{{0}} copy(%x)
}}

%search (x: f32[2]) -> f32[2] {{
  %x = f32[2]{{0}} parameter(0)
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
  %x = f32[2]{{0}} parameter(0)
  %r = f32[2]{{0}} {LOOP.format("round", 25)}
  ROOT %b = f32[2]{{0}} copy(%r)
}}

ENTRY %main (x: f32[2]) -> f32[2] {{
  %x = f32[2]{{0}} parameter(0)
  ROOT %l = f32[2]{{0}} {LOOP.format("step", 7)}
}}
"""


def test_a_turn():
    """A fusion, a copy and the shorter branch in every turn; two in the other branch, and one in a loop.

    The branch and the loop wait for the host.
    """
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
    """What is known may not get worse, and is told when it is mended."""
    good = dict.fromkeys(LIMITS, 0)
    assert verdict("linear alone", good) == ([], [])
    assert verdict("linear alone", good | {"tf32": 1})[0] == ["linear alone: tf32 must be <= 0, got 1"]
    name = next(name for name, numbers in KNOWN.items() if "kernels" in numbers)
    most = KNOWN[name]["kernels"][0]
    (wrong, known), (more, _) = (verdict(name, good | {"kernels": n}) for n in (most, most + 1))
    assert not wrong
    assert any("at most" in line for line in known)
    assert more == [f"{name}: kernels must be <= {most:g}, got {most + 1:g}"]
    assert any("take it out of KNOWN" in line for line in verdict(name, good)[1])
    assert verdict(name, {"error": "stopped after 300 s"})[0] == [f"{name}: stopped after 300 s"]


def test_what_is_known_is_about_programs_that_are_compiled():
    assert set(KNOWN) <= set(programs())
    assert all(most > LIMITS[what] for known in KNOWN.values() for what, (most, _) in known.items())
