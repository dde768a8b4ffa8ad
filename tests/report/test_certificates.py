"""Certificates as Markdown."""

import fedbandit_jax as fb


def test_a_certificate_in_markdown():
    env = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
    certificate = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 1e-3)).certificate(env.spec, 50)
    markdown = certificate.to_markdown().splitlines()
    assert [line[2:-2].split(" | ", 1) for line in markdown[2:]] == [list(line) for line in certificate.lines()]
    assert r"| claim | none: a \| b |" in fb.privacy.Certificate(claim="none", reason="a | b").to_markdown()
