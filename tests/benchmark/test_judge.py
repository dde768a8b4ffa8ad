"""A task reads fields that the package fills, and never the words of an entry."""

import dataclasses

from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.benchmark import TASKS

SILO = TASKS["sphere-silo"]


def certificate(**options):
    return fb.algos.Federated(
        policy=fb.algos.UCB(), schedule=SILO.batch, privacy=SILO.mechanism(**options)
    ).certificate(SILO.spec, SILO.horizon)


def test_words_do_not_count():
    honest = certificate()
    words = dict(trust="central: all is told", adjacency="none", unit="nobody", reason="", schedule="")
    for found in (honest, dataclasses.replace(honest, **words)):
        assert not SILO.refusal(found, 0, 0)


def test_a_trust_model_with_our_words_is_its_author_s():
    """Noise of one source, which is central, under the sentence of silo-local noise."""
    theirs = fb.privacy.GaussianTrust(certificate().trust, sources=1)
    found = certificate(trust=theirs)
    assert found.claim == "certified"
    assert found.trusted == "own"
    assert found.user_defined == ("trust: GaussianTrust",)
    assert "GaussianTrust" in str(found)
    assert "own" in SILO.refusal(found, 0, 0)


def test_an_entry_is_not_given_the_world():
    """But all that it needs to build a recipe."""
    shown = SILO.shown
    for name in ("env", "digest"):
        with refused("env"):
            getattr(shown, name)
    assert (shown.spec, shown.batch, shown.mechanism()) == (SILO.spec, SILO.batch, SILO.mechanism())
    assert TASKS["fixed-arms"].shown.arms is TASKS["fixed-arms"].arms
