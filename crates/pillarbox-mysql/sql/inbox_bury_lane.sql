-- What was buried holds back the later ones of its key.
INSERT INTO `pillarbox_inbox_lane` (`id`, `message_key`, `place`)
SELECT s.`id`, s.`message_key`, 'dead'
FROM `pillarbox_inbox_shelf` AS s FORCE INDEX (`message_id`)
WHERE s.`message_id` IN (0 /*messages*/) AND s.`state` = 'dead' AND s.`message_key` IS NOT NULL
ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE
