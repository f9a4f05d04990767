-- Results of receptors, as a JSON array of [message id in hex, receptor, state, error]. What is done stays done. Answers the
-- rows that changed.
INSERT INTO pillarbox_outbox_receptor (message_id, receptor, state, error, attempts, changed_at)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, 1, ?1 FROM json_each(?2) WHERE true
ON CONFLICT (message_id, receptor) DO UPDATE
   SET state = excluded.state, error = excluded.error, attempts = min(attempts, 2147483646) + 1,
       changed_at = excluded.changed_at
 WHERE pillarbox_outbox_receptor.state <> 'done'
RETURNING message_id, receptor;
