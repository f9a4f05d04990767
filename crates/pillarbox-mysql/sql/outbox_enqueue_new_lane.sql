-- The same for messages that no store can hold yet, and that are due at once.
INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
SELECT l.`id`, l.`message_key`, 'live'
FROM `pillarbox_outbox` AS l FORCE INDEX (`message_id`)
WHERE (0 /*messages*/) AND l.`message_key` IS NOT NULL
ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE
