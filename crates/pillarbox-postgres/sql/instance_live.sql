-- Those heard of within $1 microseconds, and none whose sign lies further ahead: somebody wrote it, or the clock was set back.
-- Others may have written longer texts and odder times than we do; they are read as far as ours may be.
SELECT
    id, left(service, 255), left(host, 255), pid, left(version, 255), left(metadata, $2),
    greatest(least(started_at, last_seen_at), timestamptz 'epoch'), last_seen_at,
    greatest((extract(epoch FROM statement_timestamp() - last_seen_at) * 1000000)::bigint, 0)
FROM pillarbox.outbox_instance
WHERE last_seen_at > statement_timestamp() - $1 * interval '1 microsecond'
AND last_seen_at < statement_timestamp() + $1 * interval '1 microsecond'
ORDER BY id
LIMIT $3
