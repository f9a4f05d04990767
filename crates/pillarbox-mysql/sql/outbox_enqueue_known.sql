-- Which messages of a batch are on the shelf, and as which rows: not ours, unless we have just put them there. A plain read:
-- locks here would hold up settlements (H14).
SELECT `message_id` AS `known`, `id`
FROM `pillarbox_outbox_shelf` FORCE INDEX (`message_id`)
WHERE `message_id` IN (0 /*messages*/)
