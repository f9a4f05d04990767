-- Keys whose messages wait behind one that was given back or is dead: the earliest of each, how many wait. At most $1.
WITH head AS MATERIALIZED (
    SELECT DISTINCT ON (message_key) message_key, id, state, last_error, CASE state WHEN 'pending' THEN due_at END AS due_at
    FROM pillarbox.outbox_shelf
    WHERE message_key IS NOT NULL AND state <> 'done' AND (state = 'dead' OR settled_by IS NOT NULL)
    ORDER BY message_key, id
)
SELECT head.message_key, head.id, head.state, head.last_error, head.due_at, live.count + waiting.count AS waiting_count
FROM head
CROSS JOIN LATERAL (
    SELECT count(*) FROM pillarbox.outbox AS live WHERE live.message_key = head.message_key AND live.id > head.id
) AS live
CROSS JOIN LATERAL (
    SELECT count(*) FROM pillarbox.outbox_shelf AS shelf
    WHERE shelf.message_key = head.message_key AND shelf.id > head.id AND shelf.state <> 'done' AND shelf.state = 'pending'
) AS waiting
WHERE live.count + waiting.count > 0
ORDER BY head.id
LIMIT $1
