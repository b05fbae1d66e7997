"""Tasks can be paused.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

RULE = "tasks_priority_tells_of_limits"
LIMITED = "max_concurrent is not null or max_per_key is not null or rate_per_s is not null"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("paused_at", sa.DateTime(timezone=True)), schema="pgtick")
    op.add_column("tasks", sa.Column("paused_note", sa.Text), schema="pgtick")
    # A worker of the release before, which knows of no pause, must be able to register its tasks: it ends theirs.
    _rule(_range(f"{LIMITED} or paused_at is not null"))


def downgrade() -> None:
    op.execute("select pgtick.resume_task(task_id) from pgtick.tasks where paused_at is not null")
    _rule(_range(LIMITED))
    # The migrations of the release before make its views and functions anew.
    op.execute("drop view pgtick.overview")
    op.drop_column("tasks", "paused_note", schema="pgtick")
    op.drop_column("tasks", "paused_at", schema="pgtick")


def _range(may_be_held: str) -> str:
    return f"priority between case when {LIMITED} then 5 else 1 end and case when {may_be_held} then 8 else 4 end"


def _rule(condition: str) -> None:
    op.drop_constraint(RULE, "tasks", schema="pgtick")
    op.create_check_constraint(RULE, "tasks", condition, schema="pgtick")
