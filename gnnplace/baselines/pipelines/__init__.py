"""Published pipeline schedules: a file a paper, over stages and tables of actions."""
