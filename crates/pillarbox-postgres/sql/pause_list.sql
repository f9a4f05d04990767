-- Every pause, the oldest first. Others may have written longer texts and odder times than we do; they are read as far as
-- ours may be.
SELECT
    left(route, 700), left(reason, 255), left(paused_by, 255), greatest(paused_at, timestamptz 'epoch'),
    greatest((extract(epoch FROM statement_timestamp() - paused_at) * 1000000)::bigint, 0)
FROM pillarbox.outbox_pause
ORDER BY paused_at, route
LIMIT $1
