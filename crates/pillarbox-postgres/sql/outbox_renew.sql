-- Makes leases last for $4 microseconds from now; see the function in migrations/0002_outbox_routines.sql.
SELECT pillarbox.outbox_renew($1, $2, $3, $4)
