-- Many messages that are due at once, on MariaDB: only the columns that the batch uses, which the program fills in, and the new
-- rows at once, which MySQL cannot return. A row that shows another fence was there before.
INSERT INTO `pillarbox_outbox` (`message_id`, `topic`, `payload`, `fence` /*columns*/)
VALUES (?, ?, ?, ? /*values*/)
ON DUPLICATE KEY UPDATE `id` = `id`
RETURNING `id`, `message_id`, `fence`
