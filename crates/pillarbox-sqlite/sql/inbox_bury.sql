-- Whatever of the message lies on the shelf and is not done is dead, for this reason; its payload stays.
UPDATE pillarbox_inbox_shelf
   SET state = 'dead', wake_at = NULL, settled_at = (SELECT now FROM pillarbox_inbox_now), settled_by = NULL,
       last_error = coalesce(?2, last_error)
 WHERE message_id = ?1 AND state <> 'done';
