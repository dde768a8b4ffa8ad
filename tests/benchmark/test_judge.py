"""A task reads fields that the package fills, and never the words of an entry."""

import dataclasses

import pytest

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


def test_a_trust_model_with_our_words_is_its_author_s(capsys):
    """Noise of one source, which is central, under the sentence of silo-local noise."""
    theirs = fb.privacy.GaussianTrust(certificate().trust, sources=1)
    found = certificate(trust=theirs)
    assert found.claim == "certified"
    assert found.trusted == "own"
    assert found.user_defined == ("trust: GaussianTrust",)
    assert "GaussianTrust" in str(found)
    assert "own" in SILO.refusal(found, 0, 0)


@pytest.mark.parametrize(
    ("field", "value"), [("trusted", "server"), ("neighbours", "zero_out"), ("whole_user", False), ("server", True)]
)
def test_every_field_that_is_read(field, value):
    tasks = {"whole_user": TASKS["returning"], "server": TASKS["ring"]}
    task = tasks.get(field, SILO)
    fits = dict(trusted=task.trusted[-1], neighbours="replace", whole_user=True, server=task.graph is None)
    fits |= dict(claim="certified", reason="", epsilon=task.epsilon, epsilon_exact=task.epsilon, delta=task.delta)
    assert not task.refusal(fb.privacy.Certificate(**fits), 0, 0)
    assert task.refusal(fb.privacy.Certificate(**fits | {field: value}), 0, 0)
