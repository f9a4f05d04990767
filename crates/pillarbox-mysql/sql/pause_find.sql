-- The pause of one route, locked: of two that change it at once the second sees what the first did.
SELECT `route`, `reason`, `paused_by`, `paused_at`, GREATEST(TIMESTAMPDIFF(MICROSECOND, `paused_at`, UTC_TIMESTAMP(6)), 0)
FROM `pillarbox_outbox_pause`
WHERE `route` = ?
FOR UPDATE
