"""The command `fedbandit data`: an overview of a table of one's own and its precision, or a check of a data set."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Command
from fedbandit_jax.cli._log import NEEDED, Columns, Roles
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

if TYPE_CHECKING:
    from fedbandit_jax.envs import Logged

EPSILONS = (0.1, 1.0, 10.0)
TRUSTS = {"silo_local": "if silos trust nobody", "secagg": "with secure aggregation"}
TOO_GOOD = 0.9  # R^2 or share of the deviance
FEW = 10  # rows, of which a silo's mean says little
HALVES = ("title", "body")  # of the features of mslr
COPIES = ("mslr", "movielens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataCommand(Command):
    """Say what is in a table of your own and what it can answer, or check your copy of a data set.

    Of a table the command lists the columns and what they can be. With --silo, --arm and --reward it fits the model,
    says how well that does on rows that it was not fitted to, and compares what best arms gain with the noise of
    privacy.

    A data set that cannot be redistributed is read from your copy. The files of mslr are also parsed once and cached
    beside the originals, so that they load fast from then on.

    For example:
      fedbandit data log.csv
      fedbandit data log.csv --silo hospital --arm drug --reward cured --features age,sex
      fedbandit data mslr --path MSLR-WEB10K --features body
      fedbandit data movielens --path ml-25m

    Args:
        dataset: a table of text, such as a .csv, or a .parquet; or the word mslr or movielens, whose copy is in the
            folder --path (of mslr Fold1/train.txt, Fold1/vali.txt and Fold1/test.txt, and --features title or body
            names a half of the features; of movielens ratings.csv, ratings.dat or u.data).
        path: folder of your copy of mslr or movielens.
    """

    flag_of: ClassVar = {"source": "dataset"}

    dataset: tyro.conf.Positional[str]
    path: Path | None = None
    columns: Columns = dataclasses.field(default_factory=Roles)

    @override
    def run(self) -> int:
        if self.dataset in COPIES:
            self._copy()
            return 0
        self.applies_to(" and ".join(COPIES), False, "path")
        given = self.columns.given
        if not {*given} - {"decimal", "missing"}:
            self._list(**given)
            return 0
        env = self.columns.table(self.dataset)
        print(f"{env.fit}\n\n{env.encoding}\n")
        print("\n".join(answers(env)))
        return 0

    def _list(self, **reading: Any) -> None:
        from fedbandit_jax.data.overview import HEAD, overview
        from fedbandit_jax.report.tables import aligned

        found = overview(self.dataset, **reading)
        print(f"{Path(self.dataset).name}: {found[0].rows:,} rows, {len(found)} columns\n")
        print(aligned([HEAD, *(one.cells for one in found)]))
        for one in found:
            if one.why:
                print(f"\n{one.why}")
        print(f"\nName columns by {', '.join(f'--{name}' for name in NEEDED)} and others to see what it can answer.")

    def _copy(self) -> None:
        import numpy as np

        import fedbandit_jax as fb

        if self.path is None:
            raise BadValue("path", f"must be the folder of your copy of {self.dataset}", None, got="none")
        half = self.columns.features
        if half is not None and self.dataset != "mslr":
            raise BadValue("features", "applies only to mslr", half)
        for name, value in self.columns.given.items():
            if name != "features":
                raise BadValue(name, "applies only to a table of one's own", value)
        if self.dataset == "movielens":
            found = fb.data.movielens(self.path)
            sizes = np.bincount(found.clusters)
            about = f"{len(sizes)} clusters of {sizes.min()} to {sizes.max()} users, d = {found.items.shape[1]}"
            print(f"{found.title}, {about}")
            return
        found = fb.data.mslr(self.path, features=validate.one_of("features", half or HALVES[0], HALVES))
        about = f"{len(found.query_sizes)} queries, {len(found.features)} documents"
        most = f"at most {found.query_sizes.max()} a query, d = {found.features.shape[1]}"
        print(f"{found.title}: {about}, {most}")


def answers(env: Logged) -> Iterator[str]:
    """The precision that a log of this size allows: gains of best arms beside the uncertainty of means of arms.

    The noise is that of a single release of sums of all rows, the least that any private algorithm adds which learns
    from all of them. Where users return, there is also that of one visit of each at every silo she comes to, which
    protects all that she does.
    """
    import numpy as np

    from fedbandit_jax.planning import propensities
    from fedbandit_jax.privacy import Budget, Users, calibrate
    from fedbandit_jax.report.tables import aligned

    fit, delta = env.fit, 1 / (10 * env.fit.replayed_rows)
    m, n = fit.silos, fit.replayed_rows
    once: Any = dict(n_syncs=1, release="blt", n_agents=m, batch=max(1, n // m), dim=fit.dim)
    entry = float(env.rows[0, 0] * env.arms[0, 0])  # of an arm's features, which is the same in all rows
    gain = fit.best - fit.uniform

    def uncertain(epsilon: float, trust: str, rows: int, users: Users) -> str:
        noise = calibrate(Budget(epsilon, delta), trust=trust, users=users, **once).model.sum_std()
        std = float(noise) / (entry * rows / fit.arms)
        return f"{std:.4f}{' (!)' * (std > gain)}"

    def table(rows: int, users: Users) -> str:
        lines = [(e, *(uncertain(e, trust, rows, users) for trust in TRUSTS)) for e in EPSILONS]
        return aligned([("epsilon", *TRUSTS.values()), *((f"{e:g}", *cells) for e, *cells in lines)])

    yield f"M = {m:,} silos, K = {fit.arms} arms, d = {fit.dim}, {n:,} rows: T = {n // m:,} rounds if each comes once."
    yield f"Best arms gain {gain:.4f} a visit over random ones, says the model. From its share of all these rows, the"
    chance = fit.noise_std * math.sqrt(fit.arms / n)
    yield f"mean of one arm is uncertain by {chance:.4f} by chance, and by noise at delta = {delta:.1g}, which protects"
    yield "one visit, by"
    yield table(n, Users(1))
    if env.users is not None:
        pairs = np.unique([env.users, np.repeat(np.arange(m), env.counts)], axis=1)
        comes = np.bincount(np.unique(pairs[0], return_counts=True)[1])
        most = len(comes) - 1
        listed = ", ".join(f"{count:,} come to {silos}" for silos, count in enumerate(comes) if count)
        silos, let_in = "silos" if most > 1 else "silo", pairs.shape[1]
        chance *= math.sqrt(n / let_in)
        yield f"\nOf {comes.sum():,} users {listed} {silos}. If one visit of each is let in at every silo, the mean of"
        yield f"one arm is uncertain by {chance:.4f} by chance, and by noise that protects all that a user does, with"
        yield f"unit = Users(visits=1, silos={most}), by"
        yield table(let_in, Users(1, silos=most))
        if most > 1:
            yield f"It is enough for who comes to {most} silos: if few do, think of leaving out their visits to others."
    yield "(!) is more than best arms gain: too few rows for such a budget."
    if small := int((env.counts < FEW).sum()):
        least = math.ceil(FEW * (n + fit.fitted_rows) / n)
        yield f"Of {m:,} silos {small:,} have fewer than {FEW} replayed rows, and each is served as often, and counts"
        yield f"as much, as any other. --min-rows {least} leaves out silos and arms that have fewer in the table."
    if env.log.propensity is not None:
        rests = propensities.OF_SHARES if env.shares else propensities.STATED
        yield from textwrap.wrap(f"{rests} {propensities.strange(env)}", 100)
    else:
        yield "Nobody says that arms were drawn at random (--propensity): if users of some kind got some arms more"
        yield "often, this gain may be theirs and not the arms'."
    if fit.explained <= 0:
        yield "The model predicts no better than the mean of all does, so that this gain may be chance."
    if fit.explained > TOO_GOOD:
        yield "The model predicts nearly everything: is a feature known only after the arm was chosen?"
