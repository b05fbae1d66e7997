-- Lets executions of a task with limits be claimed, as far as these leave room.
select admitted, earliest, again_s, last_key from pgtick.admit(%(task_key)s::int4, %(until)s::timestamptz, %(n)s::int4, %(after)s::text)
