"""Classes under ``@options`` are dataclasses: their pages list the fields with types and defaults."""

from typing import Any

import griffe


class OptionClasses(griffe.Extension):
    """Adds the decorator that griffe knows."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Mark one class."""
        for decorator in cls.decorators:
            call = decorator.value
            if isinstance(call, griffe.ExprCall) and call.canonical_path == "grls.io.arguments.options":
                known = griffe.ExprCall(griffe.ExprName("dataclasses.dataclass"), call.arguments)
                cls.decorators.append(
                    griffe.Decorator(known, lineno=decorator.lineno, endlineno=decorator.endlineno)
                )
                break
