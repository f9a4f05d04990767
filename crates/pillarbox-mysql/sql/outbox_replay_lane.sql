-- Replayed messages stand before claims again.
INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
SELECT l.`id`, l.`message_key`, 'live'
FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
WHERE l.`id` IN (0 /*ids*/) AND l.`message_key` IS NOT NULL
ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE
