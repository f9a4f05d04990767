-- Where the queue has these messages, in one snapshot: what moves between its two tables meanwhile is in one of them.
SELECT message_id, CASE
    WHEN owner_token IS NOT NULL AND locked_until > clock_timestamp() THEN 'leased' ELSE 'free' END AS place
FROM pillarbox.inbox
WHERE message_id = ANY ($1::uuid[])
UNION ALL
SELECT message_id, CASE state WHEN 'pending' THEN 'free' ELSE state END
FROM pillarbox.inbox_shelf
WHERE message_id = ANY ($1::uuid[])
