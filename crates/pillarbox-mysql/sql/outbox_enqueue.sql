-- Messages of any kind into the caller's transaction. The program fills in the rows, and the columns that they use. A row that
-- shows another fence afterwards was there before, because every call draws one. IGNORE would hide other errors; assigning a
-- column to itself changes nothing.
INSERT INTO `pillarbox_outbox` (`message_id`, `topic`, `payload`, `fence` /*columns*/)
VALUES (0 /*rows*/)
ON DUPLICATE KEY UPDATE `id` = `id`
