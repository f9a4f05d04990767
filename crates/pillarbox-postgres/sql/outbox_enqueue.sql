-- Stores messages that are due at once; see the function in migrations/0002_outbox_routines.sql.
SELECT work_id, stored_id, is_leased
FROM pillarbox.outbox_store(
    CASE WHEN $21 = 'pillarbox.outbox' THEN $1::uuid[] END,
    $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
