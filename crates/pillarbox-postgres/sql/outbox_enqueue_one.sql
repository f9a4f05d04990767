-- Stores one message that is due at once; see the function in migrations/0002_outbox_routines.sql. Before that it tells
-- whether the transaction has written, as in outbox_enqueue_new.sql: one that has not has no number yet.
SELECT txid_current_if_assigned() IS NOT NULL, pillarbox.outbox_store_one(
    CASE WHEN $21 = 'pillarbox.outbox' THEN $1::uuid END,
    $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
