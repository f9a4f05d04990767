-- Leases that ran out and may be tried again, once outbox_reap_shelve.sql has taken the others away. The fence is that of rows
-- that came back, as in outbox_settle_return.sql.
UPDATE pillarbox_outbox
   SET owner_token = NULL,
       locked_until = NULL,
       fence = -1,
       lost_lease_count = min(lost_lease_count + 1, 2147483647)
 WHERE id > ?2 AND id <= ?3 AND owner_token IS NOT NULL AND coalesce(locked_until, 0) <= ?1;
