-- Applies verdicts; see the function in migrations/0002_outbox_routines.sql. NULL means that all were applied.
SELECT pillarbox.outbox_settle($1, $2, $3, $4, $5, CASE WHEN $8 = 'pillarbox.outbox' THEN $6::uuid END, $7)
