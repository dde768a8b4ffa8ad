"""Display in notebooks."""

import html


class Printed:
    """Object that a notebook shows as `print` does."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
