-- Messages of any kind into the caller's transaction, on MariaDB. The program fills in the rows, and the columns that they use.
-- A row that shows another fence was there before, because every call draws one; `created_at` of a new one is the batch's own
-- now. IGNORE would hide other errors; assigning a column to itself changes nothing.
INSERT INTO `pillarbox_outbox` (`message_id`, `topic`, `payload`, `fence` /*columns*/)
VALUES (0 /*rows*/)
ON DUPLICATE KEY UPDATE `id` = `id`
RETURNING `id`, `message_id`, `fence`, COALESCE(`due_at` > `created_at`, FALSE) AS `delayed`,
    COALESCE(`expires_at` <= `created_at`, FALSE) AS `expired`
