-- Which results of the call with this fence were stored; the condition is repeated.
SELECT `message_id`, `receptor` FROM `pillarbox_outbox_receptor`
WHERE `fence` = ? AND ((`message_id` = ? AND `receptor` = ?))
