"""The command `fedbandit sweep`: the sweep of a TOML file, here, by a cluster, or by the tasks of a job array."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import tyro
from typing_extensions import override

from fedbandit_jax.cli import _configuration
from fedbandit_jax.cli._command import Command, Files, Output, part_of, progress
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_free
from fedbandit_jax.core.validate import BadValue

LISTED = 40  # most configurations whose table is printed


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepCommand(Command):
    """Run what a TOML file asks for: algorithms over a grid, here or on many machines.

    The file says the environment, the algorithms, the grid, the horizon and the seeds; docs/scaling.md explains it, and
    experiments/sweep.toml is an example. The sweep is cut into pieces, which are kept in a folder, the store. So after
    Ctrl-C, a crash or a change of the file, the same command computes only what is missing. It prints regrets, and
    writes OUT/NAME.npz, which `fedbandit show` prints with certificates, and draws.

    For example:
      fedbandit sweep experiments/sweep.toml
      fedbandit sweep experiments/sweep.toml --set horizon=4000 --set "grid.epsilon=[0.2, 1, 5]"
      fedbandit sweep experiments/sweep.toml --executor processes:4
      fedbandit sweep experiments/sweep.toml --executor dask:tcp://localhost:8786
      fedbandit sweep experiments/sweep.toml --part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT

    Args:
        config: the TOML file.
        set: KEY=VALUE in TOML, in the place of what the file says; a key in a table is TABLE.KEY, as in
            environment.type=gap (a text needs no quotes). A KEY that is none of the file's is a parameter of the
            environment, or of all algorithms that have it: policy.theta_norm=0.7. The flag may be repeated.
        store: folder of what is computed, which all machines must see, and other sweeps may share; default: OUT/store.
        executor: who computes: this process; processes:N of this machine; dask:ADDRESS, the workers of the Dask
            scheduler at this address; or slurm, workers that are jobs of SLURM, as the file's table [slurm] says. The
            last two need the extra `cluster`.
        part: I/N, where 0 <= I < N: compute every N-th of the pieces, beginning with the I-th, write them to the
            store, and end. When the tasks 0/N, 1/N, ... have ended, the command without this flag gathers the result.
    """

    resumes: ClassVar = "; the same command continues where it was"

    config: tyro.conf.Positional[Path]
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    store: str | None = None
    executor: str | None = None
    part: str | None = None
    output: Files = dataclasses.field(default_factory=Output)

    @override
    def run(self) -> int:
        part = None if self.part is None else part_of(self.part)
        asked = _configuration.read(self.config, self.set)
        out, name = self.output.out, self.output.name
        if part is not None and name is not None:
            raise BadValue("name", "applies only to the whole sweep, without --part", name, others=("part",))
        name = self.output.named(self.config.stem, [asked.record["text"], asked.record["set"]])
        check_free("name", out / f"{name}.npz")
        store = out / "store" if self.store is None else validate.path("store", self.store)
        if part is not None:
            print(f"part {self.part}: {self._computed(asked, store, part):,} runs computed, in {store}")
            return 0
        result = self._computed(asked, store)
        result = dataclasses.replace(result, provenance={**result.provenance, "configuration": asked.record})
        try:
            saved = result.save(out / name)
        finally:  # a full disk must not swallow what was found
            if len(result) <= LISTED:
                print("\n" + result.summary())
        its = result.provenance
        print(
            f"\n{result.status.size:,} runs, {len(result):,} configurations under {result.status.shape[-1]:,} seeds: "
            f"{its['pieces']:,} pieces, {its['computed']:,} of them computed now, in {its['seconds']:,.1f} seconds"
        )
        if failed := np.count_nonzero(result.status):
            print(f"(!) {failed:,} runs have status bits set; do not trust their regret")
        print(f"wrote {saved}, of which `fedbandit show {saved}` prints all tables and certificates")
        return 0

    def _computed(self, asked: _configuration.SweepFile, store: Path, part: tuple[int, int] | None = None) -> Any:
        import fedbandit_jax as fb
        from fedbandit_jax.engine.executors import executor

        try:
            with contextlib.ExitStack() as stack:
                options: dict[str, Any] = dict(store=store, part=part, progress=progress(), executor=None)
                if self.executor is not None:
                    options["executor"] = stack.enter_context(executor(self.executor, asked.slurm))
                return fb.sweep(**asked.arguments, **options, throw=False)
        except (ValueError, TypeError) as error:
            raise asked.located(error) from error
        except RuntimeError as error:
            if self.executor is None:
                raise
            raise ChildProcessError(str(error)) from error  # a worker failed, which says no more than its message
