-- Makes the partitions of the coming hours.
select pgtick.ensure_partitions(%(runway)s)
