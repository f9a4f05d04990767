-- Whether there are results of receptors that this user may read.
SELECT coalesce(has_table_privilege(to_regclass('pillarbox.outbox_receptor'), 'SELECT'), false)
