"""When jobs run: cron in every zone, one-off dates, policies, and one schedule's plan. Pure: no database, no clock.

`cron` says which instants an expression names, `dates` reads one-off dates, `policies` what a user chose about missed
runs, daylight saving and limits, `horizon` puts them together for the planner and for previews. Instants are aware
datetimes in UTC everywhere; "wall" means what a clock on the wall of a zone shows, as a datetime without zone.
"""
