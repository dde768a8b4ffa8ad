"""The command `fedbandit sweep`: runs a TOML file here, on a cluster, or as tasks of a job array."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import tyro
from typing_extensions import override

from fedbandit_jax.cli import _configuration
from fedbandit_jax.cli._answer import kept
from fedbandit_jax.cli._command import Command, Files, Output, Part, Set, part_of, progress, quiet
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

LISTED = 20  # most configurations of a printed table


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepCommand(Command):
    """Run the sweep of a TOML file: algorithms over a grid, here or on many machines.

    The file states the environment, the algorithms, the grid, the horizon and the seeds. docs/scaling.md explains it,
    and experiments/sweep.toml is an example. The sweep runs in pieces, which are kept in a folder, the store. After
    Ctrl-C, a crash or a change of the file the same command computes only missing pieces.

    For example:
      fedbandit sweep experiments/sweep.toml
      fedbandit sweep experiments/sweep.toml --set horizon=4000 --set "grid.epsilon=[0.2, 1, 5]"
      fedbandit sweep experiments/sweep.toml --executor processes:4
      fedbandit sweep experiments/sweep.toml --executor dask:tcp://localhost:8786
      fedbandit sweep experiments/sweep.toml --part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
    """

    resumes: ClassVar = "; finished pieces are kept, and the same command computes the others"

    config: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]  # the TOML file.
    # change of the file, PATH=VALUE in TOML, such as environment.type=gap; a string needs no quotes. A PATH that the
    # file lacks is a parameter of the environment, or of all algorithms that have it. You may repeat the flag.
    set: Set = ()
    # folder of the pieces, which all machines must see and sweeps may share (default: OUT/store).
    store: Annotated[str | None, quiet(metavar="FOLDER")] = None
    # processes:N of this machine; dask:ADDRESS of a scheduler; or slurm, with the file's table [slurm]. The last two
    # need the extra `cluster` (default: this process).
    executor: Annotated[str | None, quiet(metavar="WHERE")] = None
    # I/N with 0 <= I < N. Compute every N-th piece, beginning with number I. Afterwards the command without this flag
    # gathers the result.
    part: Part = None
    output: Files = dataclasses.field(default_factory=Output)

    @override
    def run(self) -> int:
        part = None if self.part is None else part_of(self.part)
        asked = _configuration.read(self.config, self.set)
        out, name = self.output.out, self.output.name
        if part is not None and name is not None:
            raise BadValue("name", "applies only to the whole sweep, without --part", name, others=("part",))
        name = self.output.named(self.config.stem, [asked.record["text"], asked.record["set"]])
        store = out / "store" if self.store is None else validate.path("store", self.store)
        if part is not None:
            print(f"part {self.part}: {self._computed(asked, store, part):,} runs computed, in {store}")
            return 0
        result = self._computed(asked, store)
        saved = kept(result, asked.record, out / name, most=LISTED)
        its = result.provenance
        print(
            f"\n{result.status.size:,} runs, {len(result):,} configurations under {result.status.shape[-1]:,} seeds: "
            f"{its['pieces']:,} pieces, {its['computed']:,} of them computed now, in {its['seconds']:,.1f} seconds"
        )
        if failed := np.count_nonzero(result.status):
            print(f"(!) {failed:,} runs have status bits set; do not trust their regret")
        print(f"Saved {saved}\nWhat is proved, and how:  fedbandit show {saved} --certificates")
        return 0

    @override
    def named(self, error: str) -> str:
        argument = re.split(r"\W", error, maxsplit=1)[0]
        if argument in _configuration.OPTIONS:  # a key of the file, which `fb.sweep` refuses
            return f"{self.config.name}: {error}"
        return super().named(error)

    def _computed(self, asked: _configuration.SweepFile, store: Path, part: tuple[int, int] | None = None) -> Any:
        import fedbandit_jax as fb
        from fedbandit_jax.engine.executors import executor

        try:
            with contextlib.ExitStack() as stack:
                options: dict[str, Any] = dict(store=store, part=part, progress=progress(), executor=None)
                if self.executor is not None:
                    options["executor"] = stack.enter_context(executor(self.executor, asked.slurm))
                return fb.sweep(**asked.arguments, **options, throw=False)
        except RuntimeError as error:
            if self.executor is None:
                raise
            raise ChildProcessError(str(error)) from error  # of a worker, without its traceback
