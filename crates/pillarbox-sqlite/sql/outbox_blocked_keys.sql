-- Keys whose messages wait behind one that was given back or is dead: the earliest of each, how many wait. At most ?1.
WITH head AS MATERIALIZED (
    SELECT message_key, min(id) AS id, state, last_error, due_at
      FROM pillarbox_outbox_shelf
     WHERE message_key IS NOT NULL AND state <> 'done' AND (state = 'dead' OR settled_by IS NOT NULL)
     GROUP BY message_key
)
SELECT message_key, id, state, last_error, iif(state = 'pending', due_at, NULL),
       (SELECT count(*) FROM pillarbox_outbox AS live WHERE live.message_key = head.message_key AND live.id > head.id)
       + (SELECT count(*) FROM pillarbox_outbox_shelf AS waiting
           WHERE waiting.message_key = head.message_key AND waiting.id > head.id
             AND waiting.state <> 'done' AND waiting.state = 'pending') AS waiting_count
  FROM head
 WHERE waiting_count > 0
 ORDER BY id
 LIMIT ?1;
