-- Those heard of within so many microseconds, and none whose sign lies further ahead: somebody wrote it, or the clock was set
-- back. Others may have written more metadata than we do; it is read as far as ours may be.
SELECT
    `id`, `service`, `host`, `pid`, `version`, LEFT(`metadata`, ?), `started_at`, `last_seen_at`,
    GREATEST(TIMESTAMPDIFF(MICROSECOND, `last_seen_at`, UTC_TIMESTAMP(6)), 0)
FROM `pillarbox_outbox_instance`
WHERE ABS(TIMESTAMPDIFF(MICROSECOND, `last_seen_at`, UTC_TIMESTAMP(6))) < ?
ORDER BY `id`
LIMIT ?
