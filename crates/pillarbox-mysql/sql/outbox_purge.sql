-- Oldest first, straight from the index, passing over what another purge works on.
DELETE s
FROM (
    SELECT `id` FROM `pillarbox_outbox_shelf`
    WHERE `state` = 'done' AND `wake_at` IS NULL AND `settled_at` <= UTC_TIMESTAMP(6) - INTERVAL 0 /*keep*/ MICROSECOND
    ORDER BY `settled_at`, `id` LIMIT 1 /*limit*/ FOR UPDATE SKIP LOCKED
) AS p
STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s ON s.`id` = p.`id`
