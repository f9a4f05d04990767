-- Another content for the next attempt of a message that is under a lease. The lease stays, and so do key and priority, by which
-- the running attempt has its place in the order. The parameters are those of one row of outbox_enqueue.sql.
UPDATE pillarbox_inbox
   SET topic = ?5, payload = ?6, message_type = ?7, aggregate_type = ?8, aggregate_id = ?9, tenant_id = ?10,
       correlation_id = ?12, causation_id = ?13, content_type = ?14, headers = ?15, occurred_at = ?16,
       due_at = coalesce(?19, now + ?20), expires_at = coalesce(?21, now + ?22)
  FROM pillarbox_inbox_now
 WHERE message_id = ?4 AND owner_token IS NOT NULL;
