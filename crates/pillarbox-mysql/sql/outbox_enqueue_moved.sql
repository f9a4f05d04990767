-- Takes the delayed messages of a batch out of the hot table, once they are on the shelf.
DELETE l FROM `pillarbox_outbox` AS l FORCE INDEX (`message_id`)
WHERE l.`message_id` IN (0 /*messages*/) AND l.`fence` = 0 /*fence*/ AND l.`due_at` > l.`created_at`
