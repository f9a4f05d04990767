-- Stores one message that is due at once, never expires, and whose id no store can hold yet: nothing is looked for, so no plan
-- can be wrong, and no function is needed. The program adds the columns that the message uses. The guard names the table and
-- the columns; where a pooler has swapped prepared statements it differs, and the id arrives as NULL, which is refused.
-- Answers, too, whether the transaction has written before. Then it is one that was begun, and open: the commands that write in a
-- transaction are numbered from 0, and one that stands alone is the first.
INSERT INTO pillarbox.outbox (message_id, topic, payload /*names*/)
VALUES (CASE WHEN $0 = 'guard' THEN $1::uuid END, $2::text, $3::bytea /*values*/)
RETURNING id, NOT cmin = '0'::cid
