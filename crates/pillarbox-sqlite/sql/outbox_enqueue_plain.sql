-- Messages that are due at once and never expire, as most are: only the columns that the batch uses, which the program adds,
-- as it repeats the row. Nothing is returned: one writer draws ids that follow each other, so the last one and the number of
-- new rows tell them all. The rest is as in outbox_enqueue.sql.
WITH moment (now /*lease names*/) AS MATERIALIZED (
    SELECT now /*lease values*/ FROM pillarbox_outbox_now
),
message (message_id, topic, payload /*columns*/) AS (
    VALUES
    (?, ?, ? /*values*/)
)
INSERT INTO pillarbox_outbox (created_at /*lease names*/, message_id, topic, payload /*columns*/)
SELECT moment.*, message.*
  FROM moment CROSS JOIN message
 WHERE NOT EXISTS (SELECT 1 FROM pillarbox_outbox_shelf AS s WHERE s.message_id = message.message_id)
ON CONFLICT (message_id) DO NOTHING;
