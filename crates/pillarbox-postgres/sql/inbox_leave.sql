-- Takes messages out of the queue, wherever they stand, but for those that are done; those under a running lease only when
-- $2 says so. Answers which: a message that a worker took in the meantime is missing.
WITH live AS (
    DELETE FROM pillarbox.inbox
    WHERE message_id = ANY ($1::uuid[])
    AND ($2 OR owner_token IS NULL OR locked_until <= clock_timestamp())
    RETURNING message_id
),
shelf AS (
    DELETE FROM pillarbox.inbox_shelf
    WHERE message_id = ANY ($1::uuid[]) AND state <> 'done'
    RETURNING message_id
)
SELECT message_id FROM live UNION SELECT message_id FROM shelf
