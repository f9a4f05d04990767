-- Those not heard of for so many microseconds.
DELETE FROM `pillarbox_outbox_instance`
WHERE ABS(TIMESTAMPDIFF(MICROSECOND, `last_seen_at`, UTC_TIMESTAMP(6))) >= ?
ORDER BY `id`
LIMIT ?
