-- Which messages of a batch are on the shelf already. A plain read: locks here would hold up settlements (H14).
SELECT `message_id` AS `known`
FROM `pillarbox_outbox_shelf` FORCE INDEX (`message_id`)
WHERE `message_id` IN (0 /*messages*/)
