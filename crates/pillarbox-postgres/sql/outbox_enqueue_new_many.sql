-- Stores many messages as outbox_enqueue_new.sql stores one. Rows are numbered and answered in the order of the batch.
INSERT INTO pillarbox.outbox (message_id, topic, payload /*names*/)
SELECT input.message_id, input.topic, input.payload /*values*/
FROM unnest(CASE WHEN $0 = 'guard' THEN $1::uuid[] END, $2::text[], $3::bytea[] /*arrays*/)
    AS input (message_id, topic, payload /*columns*/)
RETURNING id, NOT cmin = '0'::cid
