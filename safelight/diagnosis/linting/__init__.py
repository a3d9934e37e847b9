"""What people expect of a linter, as functions of a diagnosis: which rules count, a baseline, SARIF, a list of all."""
