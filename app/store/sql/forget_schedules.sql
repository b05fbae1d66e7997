-- Forgets single runs that were cancelled before there was a partition for them, as long after that as history is kept.
delete from pgtick.schedules where cancelled_at < now() - %(retention)s
