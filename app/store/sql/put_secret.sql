-- Keeps what the endpoint of a task is sent and nobody needs to see. Returns whether the new secret is the one from now on.
insert into pgtick.task_secrets as s (task_id, secret, headers) values (%(task_id)s, coalesce(%(secret)s, %(new)s), %(headers)s)
on conflict (task_id) do update set secret = coalesce(%(secret)s, s.secret), headers = excluded.headers
returning s.secret = %(new)s
