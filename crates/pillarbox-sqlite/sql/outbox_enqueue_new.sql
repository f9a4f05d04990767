-- Messages that are due at once, never expire, are not leased, and whose ids no store can hold yet: nothing is looked for. The
-- program repeats the row, and adds the columns that the batch uses; ids follow each other, as in outbox_enqueue_plain.sql.
INSERT INTO pillarbox_outbox (message_id, topic, payload /*columns*/)
VALUES
(?, ?, ? /*values*/);
