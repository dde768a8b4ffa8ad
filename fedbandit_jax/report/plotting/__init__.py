"""Figures of results, without JAX: curves, and regret against a coordinate."""

from fedbandit_jax.report.plotting.colours import CLAIMS as CLAIMS
from fedbandit_jax.report.plotting.colours import COLOURS as COLOURS
from fedbandit_jax.report.plotting.colours import MARKERS as MARKERS
from fedbandit_jax.report.plotting.colours import colour as colour
from fedbandit_jax.report.plotting.colours import styles as styles
from fedbandit_jax.report.plotting.curves import against as against
from fedbandit_jax.report.plotting.curves import gauge as gauge
from fedbandit_jax.report.plotting.curves import regret as regret
from fedbandit_jax.report.plotting.figure import save as save
