"""What tests of the command line share."""

import typing


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def choices(command, flag):
    """Of a Literal, also inside a tuple or a union."""
    kind = typing.get_type_hints(command)[flag]
    parts = [kind, *typing.get_args(kind)]
    return {word for part in parts if typing.get_origin(part) is typing.Literal for word in typing.get_args(part)}
