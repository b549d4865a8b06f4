"""Every mutant."""

from . import barriers, places, scopes, waits

MUTANTS = {mutant.name: mutant for group in (waits, scopes, barriers, places) for mutant in group.MUTANTS}
