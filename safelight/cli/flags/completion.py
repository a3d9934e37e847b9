"""What completes commands, flags and files in a shell: safelight --completion bash."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from tyro.conf import Positional

from safelight.errors import UsageError

BASH = """\
_safelight() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" flags=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{verbs}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _safelight safelight
"""


def completion(shell: str, verbs: Mapping[str, str]) -> str:
    """The script for a shell."""
    from safelight.config.resolve import nearest

    if shell not in SHELLS:
        raise UsageError(
            f"There is no completion for {shell[:60]!r}{nearest(shell[:60], SHELLS)} Use bash, zsh or fish."
        )
    return SHELLS[shell](verbs, {verb: flags_of(verb) for verb in verbs})


def flags_of(verb: str) -> list[str]:
    """The flags of a command, as they are typed."""
    command = importlib.import_module(f"safelight.cli.{verb}").Command
    hints = get_type_hints(command, include_extras=True)
    names = [field.name for field in fields(command) if not _is_positional(hints[field.name])]
    return [f"--{name.replace('_', '-')}" for name in names] + ["--help"]


def _is_positional(hint: Any) -> bool:
    marks = getattr(hint, "__metadata__", ())
    return any(mark in marks for mark in getattr(Positional[int], "__metadata__", ())) or Positional in marks


def bash(verbs: Mapping[str, str], flags: Mapping[str, list[str]]) -> str:
    cases = "\n".join(f'    {verb}) flags="{" ".join(flags[verb])}" ;;' for verb in verbs)
    return BASH.format(verbs=" ".join(verbs), cases=cases)


def zsh(verbs: Mapping[str, str], flags: Mapping[str, list[str]]) -> str:
    return f"autoload -Uz bashcompinit && bashcompinit\n{bash(verbs, flags)}"


def fish(verbs: Mapping[str, str], flags: Mapping[str, list[str]]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    first = "complete -c safelight -n __fish_use_subcommand -a"
    lines = [f"{first} {verb} -d {quoted(about)}" for verb, about in verbs.items()]
    for verb in verbs:
        seen = f"'__fish_seen_subcommand_from {verb}'"
        lines += [f"complete -c safelight -n {seen} -l {flag.removeprefix('--')}" for flag in flags[verb]]
    return "\n".join([*lines, ""])


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
