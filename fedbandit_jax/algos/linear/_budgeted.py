"""Recipes with a privacy budget or without: what may vary, and checked copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from fedbandit_jax.interfaces import Algorithm
from fedbandit_jax.privacy.budget import Budget


class Budgeted(Algorithm):
    """A frozen dataclass with a field `budget`."""

    factory: ClassVar[Callable[..., Any]]  # from checked or unchecked fields
    private: ClassVar[tuple[str, ...]]  # parameters that mean nothing without a budget
    public: ClassVar[tuple[str, ...]] = ()  # parameters that mean nothing with one

    budget: Any

    def parameters(self) -> tuple[str, ...]:
        """What may vary: the fields of the budget if there is one, and of what is not about privacy in any case."""
        meaningless = ("budget", *(self.private if self.budget is None else self.public))
        own = tuple(name for name in super().parameters() if name not in meaningless)
        return (*own, *(field.name for field in dataclasses.fields(Budget))) if isinstance(self.budget, Budget) else own

    def replace(self, **changes: Any) -> Any:
        """Checked copy; epsilon, delta and adjacency change the budget."""
        unknown = set(changes) - set(self.parameters())
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(sorted(unknown))}")
        fields = {name: getattr(self, name) for name in super().parameters()}
        inner = {name: changes.pop(name) for name in tuple(changes) if name not in fields}
        if isinstance(self.budget, Budget):
            fields["budget"] = dataclasses.replace(self.budget, **inner)
        return type(self).factory(**{**fields, **changes})
