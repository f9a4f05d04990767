-- Every pause, the oldest first.
SELECT `route`, `reason`, `paused_by`, `paused_at`, GREATEST(TIMESTAMPDIFF(MICROSECOND, `paused_at`, UTC_TIMESTAMP(6)), 0)
FROM `pillarbox_outbox_pause`
ORDER BY `paused_at`, `route`
LIMIT ?
