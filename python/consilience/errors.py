"""What can go wrong, by name. Messages say what was wrong, where, and what to do."""

from __future__ import annotations


class Error(Exception):
    """Anything that Consilience refuses or fails to do."""


class ConfigError(Error, ValueError):
    """A config, or an argument that became part of one, is wrong.

    >>> import consilience
    >>> try:
    ...     consilience.sample(
    ...         config={"data": {"builtin": "heart-diseas"}, "sampler": {"name": "lmc"}}
    ...     )
    ... except consilience.ConfigError as error:
    ...     print(error.field, "|", error.fix)
    data.builtin | did you mean `heart-disease`?
    """

    #: The field, such as ``sampler.step``.
    field: str | None = None
    #: What is wrong with it.
    problem: str | None = None
    #: What to do.
    fix: str | None = None


class ArgumentError(ConfigError, TypeError):
    """A keyword that no setting has.

    >>> import consilience
    >>> try:
    ...     consilience.heart(iteration=100)
    ... except TypeError as error:
    ...     print(error)
    `iteration` is no setting
      did you mean `iterations`?
    """


class DataError(ConfigError):
    """The rows do not fit the model, or each other."""


class SamplingError(Error, RuntimeError):
    """A chain failed, for example because the step is too large for the target."""


class Refused(Error, ValueError):
    """A message of the protocol was refused. Nothing changed."""


class ConsilienceWarning(UserWarning):
    """What the reader of an answer should know first: what is wrong, by how much, and what to do.

    ``Result.warnings`` has it too. ``code`` says which it is, in a word for programs; the book
    lists them.
    """

    @property
    def code(self) -> str:
        """Which warning it is, such as ``"chains-disagree"``."""
        return str(getattr(self.args[0], "code", "")) if self.args else ""


class InterruptedWarning(ConsilienceWarning):
    """Ctrl-C stopped a run before its end; the result holds what was drawn until then."""
