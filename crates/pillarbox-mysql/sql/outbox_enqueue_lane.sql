-- Messages of a batch that have a key get their places by it, while all of them are in the hot table: a search for one that has
-- left it would lock a gap under the caller's isolation.
INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
SELECT l.`id`, l.`message_key`, IF(COALESCE(l.`due_at` > l.`created_at`, FALSE), 'waiting', 'live')
FROM `pillarbox_outbox` AS l FORCE INDEX (`message_id`)
WHERE l.`message_id` IN (0 /*messages*/) AND l.`fence` = 0 /*fence*/ AND l.`message_key` IS NOT NULL
ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE
