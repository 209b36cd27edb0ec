"""What can go wrong with an expression: at compile time, and while it runs."""

from __future__ import annotations

from rune.errors import RuneError


class ExpressionError(RuneError):
    """An expression could not be evaluated. `path` says where in a template it stands."""

    code = "EXPRESSION_ERROR"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def within(self, path: str) -> ExpressionError:
        """The same error, told from the template that holds the expression."""
        return type(self)(f"{path}: {self.message}", path=path) if path else self


class MissingError(ExpressionError):
    """Something looked up is not there. This alone is what `??` and `exists()` forgive."""


class BudgetError(ExpressionError):
    """The evaluation passed one of the limits in `budget`."""


class ExpressionSyntaxError(RuneError):
    """An expression was refused before anything ran. `offset` points into its source."""

    code = "EXPRESSION_SYNTAX"

    def __init__(self, problem: str, offset: int, hint: str = "", *, path: str = "") -> None:
        advice = f"; {hint}" if hint else ""
        super().__init__(f"{problem} at character {offset + 1}{advice}")
        self.problem = problem
        self.offset = offset
        self.hint = hint
        self.path = path

    def moved(self, base: int, path: str = "") -> ExpressionSyntaxError:
        """The same error, told from the text that holds the expression at `base`."""
        return ExpressionSyntaxError(self.problem, self.offset + base, self.hint, path=path)


class ExpressionSyntaxErrors(RuneError):
    """Every syntax error found in one template."""

    code = "EXPRESSION_SYNTAX"

    def __init__(self, errors: list[ExpressionSyntaxError]) -> None:
        super().__init__("; ".join(f"{e.path}: {e.message}" if e.path else e.message for e in errors))
        self.errors = errors
