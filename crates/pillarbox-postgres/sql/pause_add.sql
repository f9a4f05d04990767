-- Pauses a route. What the statement sees is from before it: the pause that was there, which then stays as it is.
WITH new AS (
    INSERT INTO pillarbox.outbox_pause (route, reason, paused_by, paused_at)
    VALUES ($1, $2, $3, statement_timestamp())
    ON CONFLICT (route) DO NOTHING
)
SELECT
    left(route, 700), left(reason, 255), left(paused_by, 255), greatest(paused_at, timestamptz 'epoch'),
    greatest((extract(epoch FROM statement_timestamp() - paused_at) * 1000000)::bigint, 0)
FROM pillarbox.outbox_pause
WHERE route = $1
