-- The time of a whole transaction, read once; whether anything that waits on the shelf may have its time by then, whether any
-- stretch of rows is leased, and whether such a lease ran out. The count of changes lets outbox_tick.sql see whether anything was written.
SELECT now, total_changes(), EXISTS (SELECT 1 FROM pillarbox_outbox_shelf WHERE state = 'pending' AND wake_at <= now),
       EXISTS (SELECT 1 FROM pillarbox_outbox_lease), EXISTS (SELECT 1 FROM pillarbox_outbox_lease WHERE locked_until <= now)
  FROM pillarbox_outbox_now;
