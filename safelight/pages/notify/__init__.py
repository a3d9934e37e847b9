"""Messages about a run to somebody who is away: new findings, its end, its death."""
