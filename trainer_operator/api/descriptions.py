"""What the docstrings below fields say: the descriptions that `kubectl explain` shows (CR12).

They are read from the source when a schema is generated. pydantic can collect them as well, but does so whenever a
model is made, so at each start of the operator, where it takes time that nobody has use for.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel

__all__ = ["descriptions"]


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring of each field that has one, by the field's name; those of base classes are included.

    A class whose source is not there, such as one that was made by a call, has none.
    """
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind not in BaseModel.__mro__:
            found |= _of_class(kind)
    return found


@cache
def _of_class(kind: type) -> Mapping[str, str]:
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}
    (written,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(written, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(written.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
