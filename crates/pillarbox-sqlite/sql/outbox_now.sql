-- The time of a whole transaction, read once, and whether anything that waits on the shelf may have its time by then. The count of
-- changes lets outbox_tick.sql see whether anything was written.
SELECT now, total_changes(), EXISTS (SELECT 1 FROM pillarbox_outbox_shelf WHERE state = 'pending' AND wake_at <= now)
  FROM pillarbox_outbox_now;
