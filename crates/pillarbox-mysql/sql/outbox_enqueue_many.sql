-- Several messages on MySQL, everything in one round trip: a list of what `outbox_enqueue_one.sql` takes.
CALL `pillarbox_outbox_enqueue_many`(?, ?, ?, ?)
