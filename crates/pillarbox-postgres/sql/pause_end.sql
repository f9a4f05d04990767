-- Resumes a route, and tells of the pause that was there.
DELETE FROM pillarbox.outbox_pause WHERE route = $1
RETURNING
    left(route, 700), left(reason, 255), left(paused_by, 255), greatest(paused_at, timestamptz 'epoch'),
    greatest((extract(epoch FROM statement_timestamp() - paused_at) * 1000000)::bigint, 0)
