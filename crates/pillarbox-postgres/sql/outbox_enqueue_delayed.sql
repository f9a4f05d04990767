-- Stores messages of which some may have to wait; see the function in migrations/0002_outbox_routines.sql.
SELECT work_id, stored_id, is_leased
FROM pillarbox.outbox_store_delayed(
    CASE WHEN $23 = 'pillarbox.outbox' THEN $1::uuid[] END,
    $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
    $21, $22)
