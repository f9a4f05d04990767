-- The time of a whole transaction, read once. The count of changes lets outbox_tick.sql see whether anything was written.
SELECT now, total_changes() FROM pillarbox_outbox_now;
