-- Messages that are due at once, and whose ids no store can hold yet, on MariaDB: nothing is looked for, and the numbers come in
-- the order of the batch. The program repeats the row, and adds the columns that the batch uses.
INSERT INTO `pillarbox_outbox` (`message_id`, `topic`, `payload` /*columns*/)
VALUES (?, ?, ? /*values*/)
RETURNING `id`
