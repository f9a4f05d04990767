-- Makes leases of stretches that ran out into leases of their rows, for a reap that found some.
SELECT pillarbox.outbox_spread(clock_timestamp(), 1000)
