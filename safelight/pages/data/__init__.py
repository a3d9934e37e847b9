"""What pages and reports show of runs, as plain data: read from run folders, without torch and without a web."""
