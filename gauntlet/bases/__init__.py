"""The three bases: a mixture in the plane, a plain loop over digits, and the project's own trainer."""
