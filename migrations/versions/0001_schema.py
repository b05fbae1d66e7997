"""The tables of pgtick.

Revision ID: 0001
Revises: none
"""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Through the driver itself: the file is SQL as psql would read it, with no placeholders.
    driver: Any = op.get_bind().connection.driver_connection
    driver.execute(Path(__file__).with_suffix(".sql").read_bytes())
    op.execute(
        """
        insert into pgtick.partition_windows (parent, from_at, until_at, step)
        select parent, start, start, step
        from (values ('pending_executions', interval '1 hour'), ('finished_executions', interval '1 hour'),
                     ('jobs', interval '1 day'), ('execution_stats', interval '1 day')) as t (parent, step),
             lateral (select date_bin(step, now() - interval '2 hours', '2000-01-01 00:00Z')) as s (start)
        """
    )


def downgrade() -> None:
    # Everything but alembic_version, which Alembic still writes to.
    op.execute(
        """
        do $$
        declare object text;
        begin
            for object in
                (select 'routine if exists ' || oid::regprocedure from pg_proc
                 where pronamespace = 'pgtick'::regnamespace)
                union all
                (select format('table if exists pgtick.%I', relname) from pg_class
                 where relnamespace = 'pgtick'::regnamespace and relkind in ('r', 'p') and not relispartition
                   and relname <> 'alembic_version')
                union all
                (select format('sequence if exists pgtick.%I', relname) from pg_class
                 where relnamespace = 'pgtick'::regnamespace and relkind = 'S' and relname ~ '^rate_of_task_')
                -- Routines first: some take a row of a table.
                order by 1
            loop
                execute 'drop ' || object || ' cascade';
            end loop;
            drop view if exists pgtick.partitions;
        end $$
        """
    )
